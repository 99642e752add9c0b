"""Text that crosses a boundary: names cleaned for display, bodies defanged, surrogates removed.

One place for F2, F11 and H17. Light on purpose: the listener imports this file.
"""

import unicodedata

# A host downgrades a wake whose text looks like a missing command (H8).
HOST_PHRASES = ("no such file", "can't open", "cannot open", "command not found", "not found")
ZERO_WIDTH = "\u200b"
DEFAULT_NAME_CHARS = 32


def utf8(text: str) -> str:
    """The same text with lone surrogates replaced by `?`, so that it can always be encoded (H17)."""
    return text.encode("utf-8", "replace").decode("utf-8")


def has_surrogate(text: str) -> bool:
    """True when the text cannot be encoded as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def clean_line(text: str, max_chars: int) -> str:
    """One line without control, format, bidirectional or surrogate characters, cut to `max_chars`."""
    out: list[str] = []
    space = False
    for c in text[: max_chars * 64]:
        kind = unicodedata.category(c)
        if kind in ("Zs", "Zl", "Zp") or c in "\t\r\n\x0b\x0c\x85":
            space = True
        elif kind[0] != "C":
            if space and out:
                out.append(" ")
            space = False
            out.append(c)
    line = "".join(out)
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def shown_name(name: str, max_chars: int = DEFAULT_NAME_CHARS) -> str:
    """A name as it may be shown: cleaned, one line, cut, in double quotes (a quote inside becomes ')."""
    return '"' + clean_line(name, max_chars).replace('"', "'") + '"'


def fingerprint(key: str) -> str:
    """First 8 characters of a public key."""
    return key[:8]


def notice_name(petname: str, key: str, max_chars: int = DEFAULT_NAME_CHARS) -> str:
    """A petname for a notice; the key's fingerprint where the name holds a phrase that a host trips over (H8)."""
    lowered = clean_line(petname, 4 * max_chars).lower()
    if any(phrase in lowered for phrase in HOST_PHRASES):
        return fingerprint(key)
    return shown_name(petname, max_chars)


def attribute(value: str) -> str:
    """A value inside a quoted attribute: loses quotes, angle brackets, CR and LF (wire.md)."""
    return "".join(c for c in value if c not in '"<>\r\n')


def defang(body: str) -> str:
    """A body that cannot forge our markup: U+200B after `<` in `<interlink` and `</interlink`."""
    lowered = body.lower()
    if "interlink" not in lowered or len(lowered) != len(body):
        # Folding changed the length (rare capitals): positions do not carry over, so mark every bracket.
        return body if "interlink" not in lowered else body.replace("<", "<" + ZERO_WIDTH)
    out = []
    last = 0
    at = lowered.find("<")
    while at >= 0:
        if lowered.startswith(("interlink", "/interlink"), at + 1):
            out.append(body[last : at + 1] + ZERO_WIDTH)
            last = at + 1
        at = lowered.find("<", at + 1)
    return "".join(out) + body[last:]
