"""Sessions and identities: two of one key, `/clear` and `--continue`, local posts, two servers at once."""

import json
from functools import partial
from typing import Any

from interlink_lab.fixtures.policy import Policy
from interlink_lab.handles import HostHandle
from interlink_lab.run import Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import HostSpec, Topology, two_hosts

TWO_SESSIONS = Topology(
    hosts=(
        HostSpec(name="alice", trusts=("bob",), policy=Policy(reply=True)),
        HostSpec(name="bob", trusts=("alice",)),
        HostSpec(name="bob2", trusts=("alice",), identity="bob"),
    )
)
SHARED = "shared-session"
TWO_SERVERS = Topology(
    hosts=(
        HostSpec(name="alice", trusts=("bob",)),
        HostSpec(name="bob", trusts=("alice",), session=SHARED),
        HostSpec(name="bob2", trusts=("alice",), identity="bob", session=SHARED),
    )
)
QUIET_S = 2.5  # longer than two intervals of the schedule


def stored_in(run: Run, token: str) -> set[str]:
    """The sessions that have a record with this token."""
    return {e["session"] for e in run.history.of("record") if e["token"] == token and e["new"]}


def last_token(run: Run, host: HostHandle) -> str:
    """The token of what the host sent last."""
    return str(list(run.history.of("send.ok", party=host.name))[-1]["token"])


async def _knows(host: HostHandle, *others: HostHandle) -> bool:
    """Whether the host sees these sessions on the relay."""
    seen: str = await host.call("tool", tool="discover", arguments={})
    return all(other.session in seen for other in others)


@scenario(
    "two-sessions", "two sessions of one identity: each gets its own, also from itself and in reply", TWO_SESSIONS
)
async def two_sessions(run: Run) -> None:
    alice, bob, other = run.host("alice"), run.host("bob"), run.host("bob2")
    await run.until(partial(_knows, alice, bob, other), "alice to see both sessions")
    since = run.history.now
    ambiguous = await alice.send("bob")
    refused = run.history.of("send.fail", party="alice", since=since)
    listed = bool(refused) and all(h.session[:8] in refused[0]["error"] for h in (bob, other))
    run.claim("ambiguous", ambiguous is None and listed, f"no session named, two live: {refused}")
    for _ in range(run.times(1, 15)):
        for sender, receiver in ((alice, bob), (alice, other), (bob, other), (other, bob)):
            await sender.send(receiver)
            token = last_token(run, sender)
            await run.settled()
            found = stored_in(run, token)
            run.claim("own-session", found == {receiver.session}, f"{token} is in {found}, for {receiver.name}")
        for sender in (bob, other):  # alice answers: the reply goes to the session that wrote
            await sender.send(alice)
            token = last_token(run, sender) + ".a"
            await run.event("record", "bob", token=token)
            await run.settled()
            found = stored_in(run, token)
            run.claim("reply-sticks", found == {sender.session}, f"{token} is in {found}, for {sender.name}")
    await alice.send("bob")
    token = last_token(run, alice)
    await run.settled()
    found = stored_in(run, token)
    run.claim("last-writer", found == {other.session}, f"{token} without a session is in {found}")


async def serving(run: Run, host: HostHandle, since: float) -> str:
    """The session of the server that the host started since then."""
    event = await run.event("log", f"{host.name}.server", since=since, event="session")
    return str(event["fields"]["id"])


async def shown(host: HostHandle, session: str) -> dict[str, Any]:
    """What `interlink status --json` says of a session; {} where it is not listed."""
    done = await host.command("interlink", "status", "--json")
    rows: list[dict[str, Any]] = json.loads(done["out"])["sessions"]
    return next((row for row in rows if row["session"] == session), {})


@scenario(
    "clear-and-continue",
    "/clear, --continue, --resume: server and listener meet, left mail can be adopted",
    two_hosts(),
)
async def clear_and_continue(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.call("clear")
        for _ in range(2):
            await bob.armed(bob.session)
            await alice.send(bob, session=bob.session)
            await run.settled()
        random_id = await _again(run, "continue", bob.session)
        await _again(run, "resume", random_id)


async def _again(run: Run, source: str, old: str) -> str:
    """Mail for session `old` is left behind by a host that dies; another start adopts it. The new session."""
    alice, bob = run.host("alice"), run.host("bob")
    await bob.set_policy(Policy(fetch=False))
    msg_id = await alice.send(bob, session=old)
    await run.event("record", "bob", msg_id=msg_id)
    since = run.history.now
    await bob.kill()
    await run.event("exit", "bob.host", since=since)
    bob.policy = Policy()
    await bob.start(source)
    new = await serving(run, bob, since)
    run.claim("session", (new == bob.session) == (source == "resume"), f"{source}: the server's id is {new}")
    await bob.armed(new)
    left = await shown(bob, old)
    run.claim("left-is-visible", left.get("unread") == 1, f"status on the session that is left: {left}")
    done = await bob.command("interlink", "adopt", old, "--into", new)
    run.claim("adopted", done["code"] == 0, f"adopt: {done['code']} {done['out'][:200]} {done['err'][:200]}")
    await run.settled()
    await alice.send(bob, session=new)
    await run.settled()
    return new


async def post(host: HostHandle, text: str, *options: str) -> dict[str, Any]:
    """`interlink post` on the host, as another program of its user."""
    argv = ["interlink", "post", "--session", host.session, "--source", "ci", "--json", *options]
    done = await host.command(*argv, stdin=text)
    return {"code": done["code"], "err": done["err"], **(json.loads(done["out"]) if done["out"] else {})}


@scenario("local-posts", "a program of the same user posts: actionable, ephemeral, with no server", two_hosts())
async def local_posts(run: Run) -> None:
    bob = run.host("bob")
    for number in range(run.times(1, 5)):
        await bob.armed()
        await run.host("alice").send(bob)  # a peer's mail beside it
        await run.settled()
        await bob.idle()
        await bob.armed()
        token = f"m:post-{number}"
        for outcome in ("stored", "repeated"):
            done = await post(bob, f"[[{token}]] the build failed", "--id", f"build-{number}")
            run.claim("posted", done.get("outcome") == outcome, f"{done}, {outcome} is due")
        await run.event("record", "bob", token=token, state="receiver_acknowledged")
        await bob.idle()
        await bob.armed()
        await _ephemeral(run, bob, number)
        await _no_server(run, bob, number)


async def _ephemeral(run: Run, bob: HostHandle, number: int) -> None:
    since = run.history.now
    for step in range(2):
        text = f"[[m:turn-{number}-{step}]] turn {step}"
        done = await post(bob, text, "--class", "ephemeral", "--supersedes", "turn", "--id", f"t{number}-{step}")
        run.claim("posted", done.get("outcome") == "stored", f"{done}")
    await run.quiet(QUIET_S)
    woken = run.history.of("wake", "inbox", party="bob", since=since)
    run.claim("ephemeral-wakes-nobody", not woken, f"{len(woken)} notices or wakes for ephemeral posts")
    await bob.whole_turn(look=True)
    fetched = run.history.of("fetch", party="bob", since=since)
    tokens = [m["token"] for e in fetched for m in e["messages"]]
    run.claim("superseded", tokens == [f"m:turn-{number}-1"], f"the turn shows {tokens}")


async def _no_server(run: Run, bob: HostHandle, number: int) -> None:
    since = run.history.now
    await bob.disconnect()
    token = f"m:alone-{number}"
    done = await post(bob, f"[[{token}]] nobody listens", "--id", f"alone-{number}")
    run.claim("posted", done.get("outcome") == "stored" and "no server" in done["err"], f"{done}")
    await run.event("record", "bob", token=token)
    woken = run.history.of("wake", "inbox", party="bob", since=since)
    run.claim("no-server-no-notice", not woken, f"{len(woken)} notices or wakes with no server")
    await bob.connect()
    await run.event("record", "bob", token=token, state="receiver_acknowledged")
    await bob.idle()


@scenario(
    "two-hosts-one-session", "two hosts of one session: one notifies, when it dies the other does", TWO_SERVERS
)
async def two_servers(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 6)):
        for _ in range(2):
            await bob.armed(SHARED)
            await alice.send(bob)
            await run.settled()
        name = list(run.history.of("log", event="notifier"))
        holder = next(run.host(e["party"].partition(".")[0]) for e in reversed(name) if is_bob(e["party"]))
        other = run.host("bob2" if holder.name == "bob" else "bob")
        since = run.history.now
        await holder.kill()
        await run.event("exit", f"{holder.name}.host", since=since)
        await run.event("log", f"{other.name}.server", since=since, event="notifier")
        await other.turn()  # its Stop arms, where the dead host's listener was the one
        await bob.armed(SHARED)
        await alice.send(bob)
        await run.settled()
        woken = {e["party"] for e in run.history.of("wake", since=since) if is_bob(e["party"])}
        run.claim("other-takes-over", woken == {f"{other.name}.host"}, f"{woken} woke, {other.name} is alive")
        await holder.start("resume")


def is_bob(party: str) -> bool:
    """Whether it is a part of one of the two hosts that share a session."""
    return party.partition(".")[0] in ("bob", "bob2")
