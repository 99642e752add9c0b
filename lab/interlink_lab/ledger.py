"""What a history says so far, kept while a run goes on: what is accepted and not yet consumed, who listens."""

from interlink_lab.history import Event


class Ledger:
    """Fed with every event. By ids, as a bystander sees them."""

    def __init__(self) -> None:
        self._accepted: dict[str, str] = {}  # msg_id -> token
        self._done: set[str] = set()
        self._tokens_done: set[str] = set()
        self._armed: dict[str, bool] = {}
        self._sessions: dict[str, str] = {}
        self._served: dict[str, str] = {}  # server -> the session that it has opened
        self.running: set[str] = set()
        """Parties whose process runs: `bob.server`, `bob.host`, `r1`."""

    def take(self, event: Event) -> None:
        kind = event["kind"]
        if kind in ("start", "exit"):
            if kind == "exit":
                self._served.pop(event["party"], None)
            (self.running.add if kind == "start" else self.running.discard)(event["party"])
        if kind == "send.ok":
            if event["state"] != "expired":
                self._accepted[event["msg_id"]] = event["token"]
        elif kind == "raw.send":
            if event["status"] == 202 and not event["forged"]:
                self._accepted[event["token"]] = event["token"]
        elif kind == "record":
            if event["state"] == "receiver_acknowledged" or event["superseded_by"]:
                self._done.add(event["msg_id"])
                self._tokens_done.add(event["token"])
        elif kind == "expect":
            self._tokens_done |= set(event.get("lost", ()))
        elif kind in ("armed", "unarmed"):
            self._armed[event["session"]] = kind == "armed"
        elif kind == "start" and event["party"].endswith(".listener"):
            self._sessions[event["party"].partition(".")[0]] = event["session"]
        elif kind == "log" and event["event"] == "session":
            self._served[event["party"]] = event["fields"].get("id", "")
        elif kind == "identities":
            self._sessions.update(event["sessions"])

    def open(self) -> set[str]:
        """Tokens of accepted messages that are not consumed yet."""
        return {token for msg_id, token in self._accepted.items() if msg_id not in self._done} - self._tokens_done

    def served(self, host: str) -> str:
        """The session that the host's server has opened since it started, by its log; "" for none."""
        party = f"{host}.server"
        return self._served.get(party, "") if party in self.running else ""

    def is_armed(self, host: str, session: str | None = None) -> bool:
        """Whether a listener holds the lock of a session (None: the one that the host's hooks have)."""
        return self._armed.get(session or self._sessions.get(host, ""), False)
