"""What the host shows to the model: the records of one wake, as text that no record can forge or break.

A notice is our own fixed text. Any other record is a legacy message with its body in it: it gets a heading
and tags, and its body is defanged (C9). The host cuts the middle out of more than 100,000 characters, so the
whole stays below that: the longest bodies are cut, with a note, and the rest of them stays in the inbox file.
"""

from collections.abc import Mapping, Sequence

from interlink import text
from interlink.inbox import NOTICE_SENDER

# In UTF-16 units, as the host counts. The frames of 64 records take at most a third of it.
MAX_UNITS = 96_000
_NOTE_UNITS = 120

RENEWAL = (
    "[interlink listener renewal] No message has arrived; the inbox listener reached the end of its time. "
    "Nothing is to be done: end this turn now, without a reply, and the host starts the listener again.\n"
)


def render(records: Sequence[Mapping[str, object]], notes: Sequence[str], max_units: int = MAX_UNITS) -> str:
    """The text of one wake, with its final newline."""
    bodies = [_body(record) for record in records]
    remarks = [f"[interlink listener: {text.clean_line(note, 200)}]" for note in dict.fromkeys(notes)]
    frames = sum(_units(_frame(record, "")) + 1 + _NOTE_UNITS for record in records)
    cap = _fair_cap([_units(body) for body in bodies], max_units - frames - sum(_units(r) + 1 for r in remarks))
    parts = [_frame(record, _cut(body, cap)) for record, body in zip(records, bodies, strict=True)]
    return "\n".join(parts + remarks) + "\n"


def _body(record: Mapping[str, object]) -> str:
    content = _field(record, "content")
    return text.host_text(content) if record.get("sender") == NOTICE_SENDER else text.host_body(content)


def _frame(record: Mapping[str, object], body: str) -> str:
    if record.get("sender") == NOTICE_SENDER:
        return body
    names = ("sender", "msg_id", "content", "task_id", "status", "in_reply_to")
    sender, msg_id, _, task_id, status, in_reply_to = (text.utf8(_field(record, name)) for name in names)
    framed = text.block(sender, msg_id, "\0", task_id, status, in_reply_to)
    head, _, tail = text.soften(framed).partition("\0")
    return head + body + tail


def _field(record: Mapping[str, object], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _units(line: str) -> int:
    return len(line.encode("utf-16-le")) // 2


def _fair_cap(lengths: list[int], budget: int) -> int:
    """The length to which the longest are cut so that all fit into the budget; short ones stay whole."""
    ordered = sorted(lengths)
    for i, length in enumerate(ordered):
        share = max(0, budget) // (len(ordered) - i)
        if length > share:
            return share
        budget -= length
    return max(ordered, default=0)


def _cut(body: str, cap: int) -> str:
    units = _units(body)
    if units <= cap:
        return body
    kept = body.encode("utf-16-le")[: cap * 2].decode("utf-16-le", "ignore")
    return (
        f"{kept}\n[interlink: cut here, {units} characters in all; the whole text is in the session's inbox file]"
    )
