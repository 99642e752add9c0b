"""The arguments of every tool: one struct each, checked strictly; the JSON schema comes from the same struct.

A wrong type, a missing or unknown argument, a value out of range, or text that is not valid Unicode is one
clear tool error, and nothing is sent or stored (F15).
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from interlink.errors import UsageError
from interlink.text import clean_line, has_surrogate

T = TypeVar("T", bound=msgspec.Struct)
EXPLAINED_CHARS = 300

Text = Annotated[str, Meta(description="The message itself, up to 1 MiB of UTF-8")]
Petname = Annotated[
    str, Meta(description="Petname from list_peers, or `self` for another session of your own key")
]
SessionRef = Annotated[str, Meta(description="Receiver's session id or a unique prefix of it")]
TaskId = Annotated[
    str, Meta(description="Id of the task that this belongs to; use a new one for new work", min_length=1)
]
MsgId = Annotated[str, Meta(description="A message id")]
SenderKey = Annotated[str, Meta(description="Sender's public key, from a receipt")]


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No arguments."""


class SendMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    to: Petname
    text: Text
    session: SessionRef | None = None
    task_id: TaskId | None = None
    status: (
        Annotated[
            Literal["update", "needs_input", "result", "failed", "canceled"],
            Meta(
                description="Only for tasks: update (progress, wakes nobody), needs_input (a question), result, "
                "failed, canceled. Leave out for an ordinary message.",
            ),
        ]
        | None
    ) = None
    in_reply_to: (
        Annotated[str, Meta(description="msg_id of the message that this answers", min_length=1)] | None
    ) = None


class ReceiptArg(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A receipt, as receive_messages returned it"""

    sender: SenderKey
    msg_id: MsgId
    delivery_id: Annotated[str, Meta(description="From the receipt, as it is")] | None = None


class LastReceipt(ReceiptArg, forbid_unknown_fields=True, kw_only=True):
    """Last receipt of the page before, for the next page"""


class ReceiveMessages(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    notification_id: Annotated[str, Meta(description="Id from the notice, if there was one; advisory")] | None = (
        None
    )
    limit: Annotated[int, Meta(description="At most so many messages, 1 to 100; default 20")] | None = None
    after: LastReceipt | None = None


class ReadMessage(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    sender: SenderKey
    msg_id: MsgId
    offset: Annotated[int, Meta(description="Start in bytes of the UTF-8 text; default 0", ge=0)] = 0
    length: Annotated[int, Meta(description="At most so many bytes; default as much as fits", ge=1)] | None = None


class AcknowledgeMessages(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    messages: Annotated[
        list[ReceiptArg], Meta(description="Receipt objects exactly as receive_messages returned them")
    ]
    fetch_next: Annotated[bool, Meta(description="Return the next unread page in the same call")] = False


class ConversationHistory(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    peer: Petname
    limit: Annotated[int, Meta(description="The last so many messages, 1 to 100; default 20")] | None = None
    consume: Annotated[
        bool, Meta(description="True acknowledges the returned inbound messages; prefer acknowledge_messages")
    ] = False


class MessageStatus(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    msg_id: MsgId


class AddPeer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    petname: Annotated[str, Meta(description="The name that you give this peer")]
    key: Annotated[str, Meta(description="The peer's full public key, 43 characters")]


class RemovePeer(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    petname: Petname


class Discover(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    peer: Annotated[str, Meta(description="Only this petname, claimed name, key or fingerprint")] | None = None


class SetSummary(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    summary: Annotated[str, Meta(description="One line on what this session is doing, at most 200 characters")]


class RequestPair(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    target: Annotated[str, Meta(description="Full key, 8-character fingerprint or announced name, from discover")]


class AnswerPair(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    fingerprint: Annotated[str, Meta(description="Fingerprint or full key from list_pair_requests")]
    petname: (
        Annotated[str, Meta(description="The name that your user gives this peer; default the claimed name")]
        | None
    ) = None


class RejectPair(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    fingerprint: Annotated[str, Meta(description="Fingerprint or full key from list_pair_requests")]


class BindCodex(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    thread_id: Annotated[str, Meta(description="UUID of the current thread, given by the hook")]


class FailedDeliveries(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    action: Annotated[
        Literal["list", "read", "retry", "discard"], Meta(description="list, read, retry or discard")
    ]
    id: Annotated[str, Meta(description="Id from the list, for read, retry and discard")] | None = None


class CancelTask(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    to: Petname
    task_id: TaskId
    reason: Annotated[str, Meta(description="Why, for the other agent")] | None = None
    session: SessionRef | None = None


def parse(kind: type[T], arguments: dict[str, Any], tool: str) -> T:
    """The arguments as `kind`. UsageError names the tool, the argument and what is expected."""
    if _any_surrogate(arguments):
        raise UsageError(
            f"{tool}: an argument holds text that is not valid Unicode (a lone surrogate), or is nested too "
            "deeply. Nothing was changed."
        )
    # An explicit null is the same as leaving an optional argument out.
    given = {k: v for k, v in arguments.items() if v is not None}
    try:
        return msgspec.convert(given, kind)
    except (msgspec.ValidationError, RecursionError) as exc:
        raise UsageError(f"{tool}: {_explain(str(exc), kind)}. Nothing was changed.") from exc


def _explain(text: str, kind: type[msgspec.Struct]) -> str:
    text = clean_line(text, EXPLAINED_CHARS)  # it may quote what was given
    if " - at `$" in text:
        what, _, where = text.partition(" - at `$")
        name = where.rstrip("`").lstrip(".")
        words = schema(kind)["properties"].get(name, {}).get("enum")
        return f"argument {name or '(all)'}: {what}{', use one of ' + ', '.join(words) if words else ''}"
    return text


def _any_surrogate(value: object, depth: int = 0) -> bool:
    if isinstance(value, str):
        return has_surrogate(value)
    if depth > 50:
        return True
    if isinstance(value, dict):
        return any(_any_surrogate(k, depth + 1) or _any_surrogate(v, depth + 1) for k, v in value.items())
    if isinstance(value, list):
        return any(_any_surrogate(v, depth + 1) for v in value)
    return False


def schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a struct, one object without references (hosts differ on `$ref`)."""
    root = msgspec.json.schema(kind)
    defs = root.pop("$defs", {})
    inlined = _inline(root, defs)
    assert isinstance(inlined, dict)
    inlined.pop("title", None)
    inlined.setdefault("properties", {})
    if not inlined.get("required"):
        inlined.pop("required", None)  # older validators refuse an empty one
    return inlined


def _inline(node: Any, defs: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            merged = {**defs[name], **{k: v for k, v in node.items() if k != "$ref"}}
            merged.pop("title", None)
            return _inline(merged, defs)
        out = _without_null({k: _inline(v, defs) for k, v in node.items()})
        return {"type": "string", **out} if "enum" in out else out
    if isinstance(node, list):
        return [_inline(v, defs) for v in node]
    return node


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    """An optional argument is one that may be left out: `anyOf [.., null]` becomes the type alone."""
    options = node.get("anyOf")
    if isinstance(options, list):
        real = [o for o in options if o != {"type": "null"}]
        if len(real) == 1 and len(real) != len(options):
            node = {**{k: v for k, v in node.items() if k != "anyOf"}, **real[0]}
            if node.get("default", 0) is None:
                node.pop("default")
    return node
