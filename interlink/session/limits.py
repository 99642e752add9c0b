"""How long one message may be, the same for tools and commands (F6, M22). Light: no relay client."""

from interlink.errors import UsageError, WireError
from interlink.settings import Settings
from interlink.trust import wire


def check_size(msg: wire.Message, settings: Settings, undone: str = "Nothing was sent.") -> int:
    """Bytes of the message once encoded. UsageError, with `undone` at its end, where it is too long:
    the text for us, the whole for a receiver, or one of its ids.
    """
    try:
        wire.check_ids(msg)
    except WireError as exc:
        raise UsageError(f"{exc}: shorten task_id or in_reply_to. {undone}") from exc
    size = len(msg.text.encode("utf-8"))
    if size > settings.text_max_bytes:
        raise UsageError(
            f"the text has {size} bytes, more than the {settings.text_max_bytes} that one message may have: "
            f"split it. {undone}"
        )
    encoded = len(wire.encode_message(msg).encode("utf-8"))
    if encoded > settings.message_max_bytes:
        raise UsageError(
            f"the message has {encoded} bytes once encoded, more than the {settings.message_max_bytes} that a "
            f"receiver takes: split it. {undone}"
        )
    return encoded
