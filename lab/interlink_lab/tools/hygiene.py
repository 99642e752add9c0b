"""What must not be in the repository: paths of one machine, addresses of package registries, private keys.

A line that has to hold such a text ends in the comment `hygiene: ok`.
"""

import re
import sys
from pathlib import Path

from interlink_lab.tools.repo import ROOT, files

ALLOWED = "hygiene: ok"
# Text of a tracked file -> what it is. The pieces are put together so that this file passes itself.
PATTERNS = {
    "an absolute path of one machine": r"(?<![\w.$}])/(?:(?:ro"
    + r"ot|wo"
    + r"rk)\b(?!\.)|(?:Us"
    + r"ers|ho"
    + r"me)/\w+)",
    "a package registry": r"(?:py"
    + r"pi\.org|python"
    + r"hosted\.org|registry\."
    + r"npmjs|registry\."
    + r"yarnpkg"
    r"|static\.crates" + r"\.io|index\.crates" + r"\.io|proxy\.golang" + r"\.org|\bartifact" + r"ory\b)",
    "an index or download address": r"(?:--(?:extra-)?index"
    + r"-url|--find"
    + r"-links|--trusted"
    + r"-host)[ =]",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE" + r" KEY-----",
    "a secret token": r"\b(?:gh[pousr]_\w{30,}|sk-ant" + r"-api\w{10,}|AKIA[0-9A-Z]{16}|xox[bp]-\w{10,})",
}
# File names that hold keys or state.
NAMES = re.compile(r"(?:^|/)(?:id\.key|id_(?:rsa|ed25519)|\.env|[^/]+\.(?:pem|p12|pfx)|peers\.json)$")
MAX_BYTES = 1 << 20


def scan(text: str, places: tuple[str, ...] = ()) -> list[tuple[int, str]]:
    """(line, what) for each line that must go. `places`: paths of this machine, as plain text."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if ALLOWED in line:
            continue
        for what, pattern in PATTERNS.items():
            if match := re.search(pattern, line):
                found.append((number, f"{what}: {match[0]}"))
        found += [(number, f"a path of this machine: {place}") for place in places if place in line]
    return found


def check(root: Path = ROOT) -> list[str]:
    """Every finding, as "file:line: what"."""
    places = (str(root),)
    errors = []
    for path in files(root):
        if NAMES.search(path.as_posix()):
            errors.append(f"{path}: a file of this name is not for a repository")
        if (root / path).is_symlink():
            if (root / path).readlink().is_absolute():
                errors.append(f"{path}: a link to an absolute path")
            continue
        data = (root / path).read_bytes()
        if len(data) > MAX_BYTES:
            errors.append(f"{path}: {len(data)} bytes; what a program makes is not for a repository")
        if b"\0" not in data:
            errors += [
                f"{path}:{number}: {what}" for number, what in scan(data.decode("utf-8", "replace"), places)
            ]
    return errors


def main() -> None:
    errors = check()
    for line in errors:
        print(line)
    if errors:
        print(f"hygiene: {len(errors)} to mend (a line that is right all the same ends in `{ALLOWED}`)")
        sys.exit(1)
    print("hygiene: nothing that does not belong here")


if __name__ == "__main__":
    main()
