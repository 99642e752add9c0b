"""Storage and clocks that fail, mailboxes that are full, hosts that are busy, slow to acknowledge, or never do."""

from functools import partial

from interlink_lab.fixtures.policy import Policy
from interlink_lab.nemesis import Fault, Point, at, begin, seen
from interlink_lab.run import LabFailed, Run
from interlink_lab.scenarios.base import scenario
from interlink_lab.topology import LARGEST, Topology, two_hosts

HOUR_MS = 3_600_000


def receiver(policy: Policy | None = None, **env: str) -> Topology:
    """alice, and bob with this policy and settings of his own."""
    return two_hosts(bob={"policy": policy or Policy(), "env": env})


async def look(run: Run, name: str) -> None:
    """From now on this agent fetches and acknowledges everything, and does so in a turn of its user's."""
    await run.host(name).set_policy(Policy())
    await run.host(name).call("turn", look=True)


STORAGE = (
    ("in-the-way", "bob.mailbox"),
    ("disk-full", "bob.disk"),
    ("in-the-way", "bob.inbox"),
    ("corrupt", "bob.peers"),
    ("slow-sync", "bob.disk"),
    ("truncate", "bob.mailbox"),
)


async def failing_storage(run: Run, ways: tuple[tuple[str, str], ...]) -> None:
    """Mail for bob while each part of his storage fails; it waits on the relay and arrives once it is mended."""
    alice, bob = run.host("alice"), run.host("bob")
    await alice.send(bob)
    await run.settled()
    for kind, target in ways * run.times(1, 5):
        fault = await begin(run, Fault(kind, target))
        await alice.send(bob)
        await seen(run, fault)
        await fault.end()
        await look(run, "bob")
        await run.settled()


@scenario("storage-claude", "each part of a Claude host's storage fails in turn; nothing is lost", two_hosts())
async def storage_claude(run: Run) -> None:
    await run.host("bob").armed()
    await failing_storage(run, STORAGE)


@scenario(
    "storage-codex", "each part of a Codex host's storage fails in turn; nothing is lost", two_hosts("codex")
)
async def storage_codex(run: Run) -> None:
    await failing_storage(run, tuple(way for way in STORAGE if way[1] != "bob.inbox"))


@scenario(
    "corrupt-mailbox", "a mailbox that does not parse is left alone and mail waits; mended, all is there",
    receiver(Policy(ack="never")),
)  # fmt: skip
async def corrupt_mailbox(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    for kind in ("corrupt", "truncate") * run.times(1, 5):
        stored = at(run, "log", "bob.server", event="stored")
        await alice.send(bob)
        await stored
        damaged = await begin(run, Fault(kind, "bob.mailbox"))
        copied = at(run, "log", "bob.server", event="mailbox_corrupt")
        tried = [at(run, "log", "bob.server", event=event) for event in ("poll_deferred", "stored")]
        await alice.send(bob)
        await copied
        await run.until(partial(_reached, tried), "bob's server to try to store it")
        await damaged.end()
        for point in tried:
            point.drop()
    await look(run, "bob")
    await run.settled()


def _reached(points: list[Point]) -> bool:
    return any(point.event for point in points)


@scenario(
    "full-mailbox-drains", "a full mailbox leaves mail on the relay; acknowledging lets it in",
    receiver(Policy(ack="never"), INTERLINK_MAILBOX_MAX_RECORDS="5"),
)  # fmt: skip
async def full_mailbox_drains(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    full = at(run, "log", "bob.server", event="mailbox_full")
    await alice.call("burst", to="bob", count=run.times(20, 300))
    await full
    await look(run, "bob")
    await run.settled()


@scenario(
    "clock-jump", "the clock jumps by hours and back beside unread mail", receiver(Policy(ack="never"))
)  # fmt: skip
async def clock_jump(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        for offset in (10 * HOUR_MS, -10 * HOUR_MS):
            await bob.set_policy(Policy(ack="never"))
            await bob.armed()
            told = at(run, "inbox", "bob.files", what="notice")
            await alice.send(bob, session=bob.session)  # by its announcement's time it may be gone
            await told
            jump = await begin(run, Fault("clock", "bob.clock", options={"clock_ms": offset}))
            if offset > 0:  # behind a clock that went back, mail would be of the future and refused (G1)
                await alice.send(bob, session=bob.session)
            await seen(run, jump)
            await told_again(run, f"a jump of {offset} ms")
            await jump.end()
            await told_again(run, f"a jump of {-offset} ms")
            await look(run, "bob")
            await run.settled()


async def told_again(run: Run, after: str) -> None:
    """Claim that the host gets its next notice all the same (M7)."""
    point = at(run, "inbox", "bob.files", what="notice")
    try:
        await point
    except LabFailed:
        run.claim("told-after-a-jump", False, f"no notice came after {after}, although a message is unread")
    else:
        run.claim("told-after-a-jump", True, after)


@scenario(
    "busy-host", "ten messages during one long turn wake the host at most twice", receiver()
)  # fmt: skip
async def busy_host(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.armed()
        began = at(run, "turn", "bob.host")
        await bob.call("turn", busy_s=5)
        since = (await began)["t"]
        for _ in range(10):
            await alice.send(bob)
        await run.settled()
        wakes = run.history.of("wake", party="bob", since=since)
        run.claim("two-wakes", 1 <= len(wakes) <= 2, f"{len(wakes)} wakes for ten messages in one turn")


@scenario("late-ack", "a host acknowledges late, in another turn", receiver(Policy(ack="late", ack_after_s=2.5)))
async def late_ack(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(2, 10)):
        await bob.armed()
        await alice.send(bob)
        await run.settled()


@scenario("never-ack", "a host that never acknowledges is told again and again", receiver(Policy(ack="never")))
async def never_ack(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    await alice.send(bob)
    for _ in range(run.times(4, 20)):
        told = at(run, "wake", "bob.host")
        await told
    await look(run, "bob")
    await run.settled()


@scenario("burst", "many messages at once, more than one page and one batch holds", receiver())
async def burst(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    await bob.armed()
    await alice.call("burst", to="bob", count=run.times(400, 4000), parallel=8)
    await run.settled(guard_s=120 if not run.is_long else 900)


@scenario(
    "largest", "messages of the largest size, both ways; one byte more is refused and nothing is sent", receiver()
)
async def largest(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for number in range(run.times(1, 10)):
        for sender, to in ((alice, bob), (bob, alice)):
            head = f"[[m:{sender.name}-large-{number}]] "
            whole = "x" * (LARGEST - len(head))
            sent = await sender.call("send", to=to.name, text=head + whole)
            run.claim("taken", sent is not None, f"a text of {LARGEST} bytes")
            since = run.history.now
            more = await sender.call(
                "send", to=to.name, text=f"[[m:{sender.name}-over-{number}]] {whole}xxxxxxxxxx"
            )
            errors = [e["error"] for e in run.history.of("send.fail", party=sender.name, since=since)]
            run.claim("refused", more is None and "bytes" in "".join(errors), f"a larger text: {errors}")
        await run.settled()


@scenario("full-disk-at-start", "a server that starts on a full disk works once there is room again", receiver())
async def full_disk_at_start(run: Run) -> None:
    alice, bob = run.host("alice"), run.host("bob")
    for _ in range(run.times(1, 5)):
        await bob.disconnect()
        since = run.history.now
        full = await begin(run, Fault("disk-full", "bob.disk"))
        await bob.connect()
        await run.event("log", party="bob.server", since=since, event="not_ready")
        await full.end()
        await alice.send(bob, session=bob.session)
        await run.settled()
