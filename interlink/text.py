"""Text that crosses a boundary: names cleaned for display, bodies defanged, surrogates removed.

One place for F2, F11 and H17. Light on purpose: the listener imports this file.
"""

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

# A host downgrades a wake whose text looks like a missing command (H8).
HOST_PHRASES = ("no such file", "can't open", "cannot open", "command not found", "not found")
ZERO_WIDTH = "\u200b"
DEFAULT_NAME_CHARS = 32
ATTRIBUTE_CHARS = 64
# Characters that a terminal acts on: C0 without tab and line ends, DEL, C1 without U+0085, bidirectional marks.
_RAW = frozenset(
    [c for c in range(0x20) if c not in (0x09, 0x0A, 0x0D)]
    + [c for c in range(0x7F, 0xA0) if c != 0x85]
    + [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2 messages`; `plural` where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


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
    import re  # not at the top: the listener imports this file after every turn

    return re.sub(r"<(?=/?interlink)", "<" + ZERO_WIDTH, body, flags=re.IGNORECASE)


def block(sender: str, msg_id: str, body: str, task_id: str = "", status: str = "", in_reply_to: str = "") -> str:
    """One message as an agent sees it (wire.md): a line that names the sender, then body between our tags.

    The body must have gone through `defang`; the other values are cleaned here, so that none of them can end
    the line or the tag.
    """
    name = clean_line(attribute(sender), DEFAULT_NAME_CHARS).replace("]", ")")
    fields = [
        ("sender", name),
        ("msg_id", msg_id),
        ("task", task_id),
        ("status", status),
        ("in_reply_to", in_reply_to),
    ]
    shown = "".join(f' {k}="{clean_line(attribute(v), ATTRIBUTE_CHARS)}"' for k, v in fields if v or k == "msg_id")
    return f"[interlink message from {name}]:\n<interlink{shown}>\n{body}\n</interlink>"


def host_text(text: str) -> str:
    """Our own text (a notice) as a host may print it: nothing that a terminal acts on, no phrase of F2."""
    return soften(utf8(text).translate(dict.fromkeys(_RAW)))


def host_body(body: str) -> str:
    """A peer's body as a host may print it (C9, H8).

    As `host_text`, and no tag of ours or of the host's notices, and nothing that begins like our headings.
    """
    import re

    clean = defang(host_text(body))
    return re.sub(r"<(?=/?(?:system-reminder|task-notification))|\[(?=interlink)", _mark, clean, flags=re.I)


def soften(text: str) -> str:
    """U+200B inside the phrases that make a host drop a wake (F2)."""
    import re

    phrases = "|".join(re.escape(p).replace("'", "['’]?").replace(r"\ ", r"\s+") for p in HOST_PHRASES)
    return re.sub(phrases, lambda found: re.sub(r"\b(\w)(?=\w)", _mark, found[0]), text, flags=re.I)


def _mark(found: "re.Match[str]") -> str:
    return found[0] + ZERO_WIDTH
