"""`just bench`: the figures P1 to P6, a table and a JSON file.

    python -m interlink_lab.bench [--only P1,P3] [--quick] [--peer] [--repeat N] [--out FILE]

`--peer` does the same work with the peer's binaries (INTERLINK_PEER_DIR, else as `hosts-install` put them), in
the same run, and prints the ratios with what they should be.
The disk's own sync time is measured beside it, since it bounds what durable can mean.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlink_lab.bench import measures
from interlink_lab.bench.inside import p4_inside
from interlink_lab.bench.rig import Rig, disk_sync_ms, median
from interlink_lab.tools import hosts

# figure -> (goal, "at most" or "at least")
GOALS: dict[str, tuple[float, str]] = {
    "P1.median_ms": (60, "at most"),
    "P2.1000_per_s": (500, "at least"),
    "P2.4000_per_s": (500, "at least"),
    "P3.64_per_s": (5000, "at least"),
    "P4.4000_batch64_ms_per_message": (0.5, "at most"),
    "P4.4000_single_ms": (30, "at most"),
    "P4.10_single_syncs": (3, "at most"),
    "P5.listener_rss_mb": (14, "at most"),
    "P5.listener_cpu_pct": (0.1, "at most"),
    "P5.server_rss_mb": (95, "at most"),
    "P5.server_cpu_pct": (0.3, "at most"),
    "P6.wait_ms": (150, "at most"),
    "P6.initialize_ms": (1500, "at most"),
}

# figure -> (goal of ours / peer, "at most" or "at least")
RATIOS: dict[str, tuple[float, str]] = {
    "P1.median_ms": (0.25, "at most"),
    "P2.1000_per_s": (5, "at least"),
    "P2.4000_per_s": (10, "at least"),
    "P3.1_per_s": (1, "at least"),
    "P3.16_per_s": (3, "at least"),
    "P3.64_per_s": (3, "at least"),
}


def plan(quick: bool, beside: bool) -> dict[str, Callable[[Rig], measures.Numbers]]:
    """The measurements by name; `quick` takes fewer rounds, `beside` what can be compared with a peer."""
    peer_slow = 0.05

    def p4(rig: Rig) -> measures.Numbers:
        found = {} if rig.folder else p4_inside(rig.home, [10, 1000, 4000])
        if beside:
            every_s = 0.01 if rig.folder else 0.002
            found |= {f"outside_{k}": v for k, v in measures.p4_admission(rig, [10, 1000], every_s).items()}
        return found

    return {
        "P1": lambda rig: measures.p1_wake(rig, 10 if quick else 100),
        "P2": lambda rig: measures.p2_drain(
            rig, [1000] if quick else [1000, 4000], peer_slow if rig.folder else 0.002
        ),
        "P3": lambda rig: measures.p3_sends(rig, [1, 16, 64], 1 if quick else 3),
        "P4": p4,
        "P5": lambda rig: measures.p5_idle(rig, 5 if quick else 30),
        "P6": lambda rig: measures.p6_start(rig, 3 if quick else 10),
    }


def run(folders: list[str | None], names: list[str], quick: bool, repeat: int) -> list[dict[str, float]]:
    """All figures of each implementation, as `P1.median_ms` and so on.

    One figure after the other, the implementations in turn, so that both meet the same disk and the same
    neighbours; of several rounds the median.
    """
    rounds: list[dict[str, list[float]]] = [{} for _ in folders]
    for name, measure in plan(quick, len(folders) > 1).items():
        if name not in names:
            continue
        for number in range(repeat):
            for folder, seen in zip(folders, rounds, strict=True):
                sys.stderr.write(f"{'peer' if folder else 'ours'}: {name} ({number + 1} of {repeat}) ...\n")
                rig = Rig(folder)
                try:
                    for figure, value in measure(rig).items():
                        seen.setdefault(f"{name}.{figure}", []).append(value)
                finally:
                    rig.close()
    return [{figure: median(values) for figure, values in seen.items()} for seen in rounds]


def table(ours: dict[str, float], peer: dict[str, float] | None) -> str:
    """The figures with goals, and the peer's beside them."""
    head = f"{'figure':<36}{'ours':>12}{'goal':>18}"
    lines = [head + (f"{'peer':>12}{'ours/peer':>11}{'goal':>18}" if peer is not None else "")]
    for name in dict.fromkeys((*ours, *(peer or {}))):
        value = ours.get(name)
        line = f"{name:<36}{_number(value):>12}"
        line += f"{_goal(GOALS.get(name), value):>18}"
        if peer is not None:
            other = peer.get(name)
            line += f"{_number(other):>12}"
            ratio = value / other if value is not None and other else None
            line += "" if ratio is None else f"{ratio:>11.2f}{_goal(RATIOS.get(name), ratio):>18}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def _goal(goal: tuple[float, str] | None, value: float | None) -> str:
    """The goal, with a mark where it is missed."""
    if goal is None or value is None:
        return ""
    bound, kind = goal
    met = value <= bound if kind == "at most" else value >= bound
    return f"{'' if met else '! '}{kind} {bound:g}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure the figures P1 to P6.")
    parser.add_argument("--only", default="P1,P2,P3,P4,P5,P6", help="comma-separated figures")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a first look")
    parser.add_argument("--peer", action="store_true", help="also the binaries in INTERLINK_PEER_DIR")
    parser.add_argument("--repeat", type=int, default=1, help="rounds of each figure; the median is shown")
    parser.add_argument("--out", default="", help="JSON file; default bench-results/TIME.json")
    args = parser.parse_args()
    names = [n.strip().upper() for n in args.only.split(",")]
    theirs = hosts.peer() if args.peer else None
    if args.peer and theirs is None:
        sys.exit("no binaries of the peer: run ./dev hosts-install peer, or set INTERLINK_PEER_DIR")
    folder = None if theirs is None else str(theirs)
    out = Path(args.out or Path("bench-results") / f"{time.strftime('%Y%m%d-%H%M%S')}.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    disk = disk_sync_ms(out.parent)
    found = run([None, folder] if args.peer else [None], names, args.quick, args.repeat)
    ours, peer = found[0], found[1] if args.peer else None
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    result: dict[str, Any] = {"machine": machine, "disk": disk, "ours": ours, "peer": peer}
    out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(f"disk: 4 KiB durable in {disk['sync_ms']:.3f} ms (p99 {disk['sync_p99_ms']:.3f}), ", end="")
    print(f"file replaced durably in {disk['replace_ms']:.3f} ms; {machine['cores']} cores")
    print(table(ours, peer))
    if "P3.64_per_s" in ours:
        a_sync = ours["P3.64_per_s"] * disk["sync_ms"] / 1000
        print(f"P3 with 64 senders: {a_sync:.1f} sends in the time of one 4 KiB sync")
    print(f"written to {out}")


if __name__ == "__main__":
    main()
