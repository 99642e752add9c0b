"""The allowlist, `peers.json`: whose messages are admitted, under which petname. Read live (G7, G8, T2).

    {"alice": {"key": "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"}}

Other members of an entry are kept. The file is the person's: a symbolic link is written through.

It fails closed. A file that cannot be used in any respect admits nobody, `current()` raises and mail stays
on the relay, until the file is mended; it is read again as soon as it changes. No file at the first look is
an installation without peers. A file that was there and is gone is a fault until it is back (`{}` trusts
nobody), so that a moved file or an absent disk does not turn friends into strangers.

Our own key in the file (one file shared by several machines) is no peer: it is `self`, see `own_entry`.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from interlink import log
from interlink.errors import SetupError, StateError, UsageError, WireError
from interlink.settings import Settings
from interlink.state import files
from interlink.state.locks import Lock
from interlink.text import clean_line, fingerprint, has_surrogate, shown_name
from interlink.trust.gate import SELF
from interlink.trust.identity import check_public_key, match_keys

LOCAL = "local:"  # local sources are shown so (L1)
_MENTION = 20  # petnames that an error lists
_BOM = b"\xef\xbb\xbf"  # some editors put a byte-order mark in front

# Two writes within one tick of a file system's clock leave one time: a file changed this lately is read
# again instead of trusted by its signature. 2 s is the coarsest clock (FAT).
_CLOCK_NS = 2_000_000_000

Table = dict[str, object]  # the file as it is: petname -> entry


class Peers(NamedTuple):
    """The allowlist both ways. Shared by all callers: do not change the dicts."""

    by_name: dict[str, str]
    by_key: dict[str, str]


def check_petname(petname: str, settings: Settings) -> str:
    """The petname itself; UsageError unless it can be shown as it is, and is no word of ours (F11, L1)."""
    longest = settings.name_max_chars
    folded = petname.casefold()
    if not petname or "#" in petname or clean_line(petname, longest) != petname:
        raise UsageError(
            f"petname {shown_name(petname)} is not valid: use 1 to {longest} visible characters, no #, "
            "single spaces between words only"
        )
    if folded == SELF or folded.startswith(LOCAL):
        raise UsageError(f'petname {shown_name(petname)} is taken: "{SELF}" and "{LOCAL}..." have a meaning')
    return petname


class PeersFile:
    """One peers file. Every call sees the file as it is now; `add` and `remove` rewrite it under its lock.

    Every method but `problem` raises SetupError while the file cannot be used.
    """

    def __init__(self, path: str, own_key: str, settings: Settings) -> None:
        """`path`: the file, which need not exist. `own_key`: our public key. Nothing is read here."""
        self.path = os.path.abspath(path)
        self._own_key = own_key
        self._settings = settings
        self._cache: tuple[object, Peers] | None = None  # by the file's signature, once that can be trusted
        self._parsed: tuple[bytes | None, Peers] | None = None  # by the file's bytes
        self._seen = False  # the file has been there
        self._told: str | None = None  # the fault at the last look, "" for none, None before the first
        self._own_entry = ""

    def current(self) -> Peers:
        """The peers now: a stat where nothing has changed. SetupError while the file cannot be used (G7).

        A fault found at the first look is the caller's to report; later changes, also the end of a fault, are
        logged here.
        """
        try:
            peers = self._load()
        except SetupError as exc:
            self._tell(str(exc))
            raise
        self._tell("")
        return peers

    @property
    def problem(self) -> str:
        """The present fault as one line that says how to mend it, "" for none."""
        try:
            self.current()
        except SetupError as exc:
            return str(exc)
        return ""

    @property
    def own_entry(self) -> str:
        """The petname under which the file lists our own key, "" for none. SetupError as `current`."""
        self.current()
        return self._own_entry

    def resolve(self, text: str) -> tuple[str, str]:
        """(petname, key) for a petname, `self`, a full key or a fingerprint; our own key is `self`.

        Raises UsageError: nobody of that name (lists who there is), a fingerprint of several keys (G8).
        """
        peers = self.current()
        if text in peers.by_name:
            return text, peers.by_name[text]
        if text and text in (SELF, self._own_entry):
            return SELF, self._own_key
        found = match_keys(text, [*peers.by_key, self._own_key])
        if len(found) > 1:
            names = ", ".join(shown_name(peers.by_key.get(key, SELF)) for key in found[:_MENTION])
            raise UsageError(f"the fingerprint {text} belongs to {len(found)} keys ({names}): give the full key")
        if not found:
            raise UsageError(self._unknown(text, peers.by_name))
        return peers.by_key.get(found[0], SELF), found[0]

    def add(self, petname: str, key: str, *, extra: dict[str, object] | None = None) -> None:
        """Trust a key under a petname, durably; `extra` are further members of the entry (JSON values).

        The same pair again changes nothing but `extra`. Raises UsageError: a petname or key that is not
        valid, our own key, a petname of another key, a key that has another petname. SetupError: the file
        is broken (it is never overwritten). StateError: it cannot be written or locked.
        """
        check_petname(petname, self._settings)
        try:
            check_public_key(key)
        except WireError as exc:
            raise UsageError(f"the key for {shown_name(petname)} is not valid: {exc}") from exc
        if key == self._own_key:
            raise UsageError(f'that is our own key: our other sessions are "{SELF}" without an entry')
        with self._locked() as real:
            table = self._read()
            peers = self._check(table)[0]
            entry = table.get(petname, {})
            assert isinstance(entry, dict)  # checked just now
            if entry and entry["key"] != key:
                raise UsageError(
                    f"{shown_name(petname)} is the petname of another key (fingerprint "
                    f"{fingerprint(entry['key'])}): remove it first, or choose another petname"
                )
            other = peers.by_key.get(key, petname)
            if other != petname:
                raise UsageError(
                    f"that key is known as {shown_name(other)}: to rename it, remove {shown_name(other)} "
                    f"and add {shown_name(petname)}"
                )
            changed = {**(entry or {"key": key}), **(extra or {}), "key": key}
            if changed != entry:
                table[petname] = changed
                self._write(real, table)

    def remove(self, petname: str) -> None:
        """Trust a petname's key no longer, durably. UsageError for an unknown petname.

        Works also on an entry that is itself the fault. StateError: the file cannot be written or locked.
        """
        self._need(petname, self._read())  # so that a wrong name makes no directory and no lock file
        with self._locked() as real:
            table = self._read()
            self._need(petname, table)
            del table[petname]
            self._write(real, table)

    # --- reading ---

    def _load(self) -> Peers:
        looked_at = time.time_ns()
        try:
            signature = files.signature(self.path)
        except StateError as exc:
            raise SetupError(f"the peers file cannot be used: {exc}") from exc
        if signature is not None and self._cache is not None and self._cache[0] == signature:
            return self._cache[1]
        data = self._bytes()
        if self._parsed is None or self._parsed[0] != data:
            peers, self._own_entry = self._check(self._table(data))
            self._parsed = (data, peers)
        settled = signature is not None and looked_at - signature[2] > _CLOCK_NS
        self._cache = (signature, self._parsed[1]) if settled else None
        return self._parsed[1]

    def _read(self) -> Table:
        return self._table(self._bytes())

    def _bytes(self) -> bytes | None:
        """What the file holds, None where there is none at the first look."""
        try:
            data = files.read_bytes(os.path.realpath(self.path), limit=self._settings.peers_max_bytes)
        except StateError as exc:
            self._seen = True
            raise SetupError(f"the peers file cannot be used: {exc}") from exc
        if data is None:
            self._refuse_absence()
        else:
            self._seen = True
        return data

    def _table(self, data: bytes | None) -> Table:
        """The file as JSON, its shape alone checked."""
        if data is None:
            return {}
        try:
            return _parse(data)
        except (ValueError, RecursionError) as exc:
            raise self._fault(f"{exc}; mend it by hand, or take a copy that is whole") from exc

    def _refuse_absence(self) -> None:
        if os.path.islink(self.path):
            target = os.path.realpath(self.path)
            raise self._fault(f"it links to {target}, which is not there: bring that back, or write {{}} to it")
        if self._seen:
            raise self._fault("it was there and is gone: put it back, or write {} to it to trust nobody")

    def _check(self, table: Table) -> tuple[Peers, str]:
        """(the peers, the petname of our own key). SetupError names the first entry that is wrong."""
        peers = Peers({}, {})
        names: dict[str, str] = {}
        for petname, entry in table.items():
            try:
                check_petname(petname, self._settings)
                key = _entry_key(entry)
            except (UsageError, WireError) as exc:
                raise self._fault(f"the entry {shown_name(petname)}: {exc}; correct or remove it") from exc
            if key in names:
                raise self._fault(
                    f"the entries {shown_name(names[key])} and {shown_name(petname)} have the same key: remove one"
                )
            names[key] = petname
            if key != self._own_key:
                peers.by_name[petname] = key
                peers.by_key[key] = petname
        return peers, names.get(self._own_key, "")

    def _fault(self, text: str) -> SetupError:
        return SetupError(f"the peers file {self.path} cannot be used: {text}")

    def _tell(self, fault: str) -> None:
        if self._told is not None and self._told != fault:
            if fault:
                log.event("peers_fault", path=self.path, error=fault)
            else:
                log.event("peers_mended", path=self.path)
        self._told = fault

    # --- writing ---

    @contextmanager
    def _locked(self) -> Iterator[str]:
        """Hold the lock of the real file, the same one whichever link leads to it; yields its path."""
        real = os.path.realpath(self.path)
        try:
            files.make_dirs(os.path.dirname(real))
        except OSError as exc:
            raise files.explain(exc, f"make the directory of {real}") from exc
        with Lock(real + ".lock"):
            yield real

    def _write(self, real: str, table: Table) -> None:
        text = json.dumps(table, indent=2, ensure_ascii=False, allow_nan=False)
        if has_surrogate(text):  # in a member that is not ours
            text = json.dumps(table, indent=2, allow_nan=False)
        data = text.encode("utf-8") + b"\n"
        limit = self._settings.peers_max_bytes
        if len(data) > limit:
            raise UsageError(
                f"the peers file would have {len(data)} bytes, more than the {limit} that it may have"
            )
        files.atomic_write(real, data)

    def _need(self, petname: str, table: Table) -> None:
        if petname not in table:
            raise UsageError(self._unknown(petname, table))

    def _unknown(self, text: str, names: Table | dict[str, str]) -> str:
        if not names:
            return f"no peer {shown_name(text)}: there are no peers yet"
        shown = ", ".join(shown_name(name) for name in list(names)[:_MENTION])
        more = f" and {len(names) - _MENTION} more" if len(names) > _MENTION else ""
        return f"no peer {shown_name(text)}: known are {shown}{more}"


def _entry_key(entry: object) -> str:
    key = entry.get("key") if isinstance(entry, dict) else None
    if not isinstance(key, str):
        raise WireError('it needs the form {"key": "..."}')
    check_public_key(key)
    return key


class _Pairs(list[tuple[str, object]]):
    """An object's members as they are written, with repeats."""


def _parse(data: bytes) -> Table:
    """The top object; ValueError says in words what is wrong, also for a repeated member name."""
    if not data.strip():
        raise ValueError("it is empty ({} is a file without peers)")
    try:
        text = data.removeprefix(_BOM).decode("utf-8")
        top = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse, parse_float=_finite)
    except UnicodeDecodeError as exc:
        raise ValueError("it is not UTF-8") from exc
    except json.JSONDecodeError as exc:
        raise ValueError(f"it is not JSON ({exc})") from exc
    if not isinstance(top, _Pairs):
        raise ValueError("it is not an object of petnames")
    table = _plain(top, "the entry")
    assert isinstance(table, dict)
    return table


def _plain(value: object, what: str) -> object:
    if isinstance(value, _Pairs):
        out: Table = {}
        for name, inner in value:
            if name in out:
                raise ValueError(f"{what} {shown_name(name)} is there twice")
            out[name] = _plain(inner, f"{what} {shown_name(name)}: the member")
        return out
    if isinstance(value, list):
        return [_plain(one, what) for one in value]
    return value


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if abs(value) == float("inf"):
        raise ValueError(f"the number {text[:20]} is too large")
    return value
