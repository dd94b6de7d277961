"""Attack both brokers, and print the effect on a healthy client.

    python -m benchmarks.attacks --only config-pipeline --rounds 3

Every attack gets fresh servers of each side. The p99 and the worst latency are the median of the
rounds; a minute after the last one the anonymous memory is measured again. ``--check`` exits with 1
when a goal is missed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.attacks.catalogue import ATTACKS, Attack, Target
from benchmarks.attacks.watch import Outcome, anonymous_bytes, limited, strike
from benchmarks.load import BenchmarkError
from benchmarks.report import NO_GOAL, Line, bound, show
from benchmarks.sides import JavaSide, RoquetSide, Running, Side
from roquet.runtime.open_files import raise_open_files_limit

MIB = 1 << 20
MEMORY_BACK = 1.2
"""Memory is back when it is at most this much of what it was before the attack ..."""

SMALL_BYTES = 16 << 20
"""... or has grown by less than this."""

GOALS = {
    "p99 ms": bound(50),
    "worst ms": bound(250),
    "memory MB": bound(200),
    "memory after, times": bound(MEMORY_BACK),
    "refused": bound(0),
    "lost": bound(0),
    "dead": bound(0),
}


def measure(
    side: Side, attack: Attack, folder: Path, *, rounds: int, scale: float, wait_s: float
) -> dict[str, float]:
    """The numbers of one attack on one side; for a server that died, those until then."""
    with limited(attack):
        running = side.start(folder, {"enablePropertyFilter": "true"})
    outcomes: list[Outcome] = []
    pid = running.namesrv.pid if attack.on_namesrv else running.pid
    is_dead = False
    try:
        for _ in range(rounds):
            target = Target(running.address, running.namesrv_address)
            try:
                outcomes.append(strike(attack, target, pid, scale=scale))
            except (BenchmarkError, OSError) as error:
                print(f"{side.name}: {error}", file=sys.stderr)
                break
        is_dead = len(outcomes) < rounds or not _lives(running)
        before = outcomes[0].before_bytes if outcomes else 0
        after = _after(pid, before, wait_s)
    finally:
        running.kill()
    if not outcomes:
        return {"dead": 1.0}
    return {
        "calm p99 ms": statistics.median(each.calm_p99_s for each in outcomes) * 1e3,
        "p99 ms": statistics.median(each.p99_s for each in outcomes) * 1e3,
        "worst ms": statistics.median(each.worst_s for each in outcomes) * 1e3,
        "memory MB": max(each.most_bytes for each in outcomes) / MIB,
        "memory after, times": after,
        "refused": float(sum(each.refused + each.broken for each in outcomes)),
        "acknowledged": float(sum(each.acknowledged for each in outcomes)),
        "lost": float(sum(each.lost for each in outcomes)),
        "dead": float(is_dead),
    }


def _lives(running: Running) -> bool:
    return running.broker.is_running() and running.namesrv.is_running()


def _after(pid: int, before: int, wait_s: float) -> float:
    """The smallest memory within the wait, relative to that before the attack."""
    deadline = time.monotonic() + wait_s
    while True:
        now = anonymous_bytes(pid)
        share = now / before if before else 0.0
        if share <= MEMORY_BACK or time.monotonic() > deadline:
            return share
        if now - before < SMALL_BYTES:
            return MEMORY_BACK
        time.sleep(0.5)


def lines_of(name: str, java: dict[str, float], roquet: dict[str, float]) -> list[Line]:
    """The lines of one attack."""
    titles = ["calm p99 ms", *GOALS]
    return [
        Line(name, title, java.get(title), roquet.get(title), GOALS.get(title, NO_GOAL), 1)
        for title in titles
        if title in roquet or title in java
    ]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=tuple(ATTACKS), action="append", metavar="ATTACK",
                        help=f"one of {', '.join(ATTACKS)}; may be repeated")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="strikes on the same servers")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size")
    parser.add_argument("--wait", type=float, default=60.0, help="seconds until memory is back")
    parser.add_argument("--skip-java", action="store_true", help="attack Roquet alone")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table for programs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen attacks, and print the table."""
    options = parse(arguments)
    sides: Sequence[Side] = [RoquetSide()] if options.skip_java else [JavaSide(), RoquetSide()]
    raise_open_files_limit()
    lines: list[Line] = []
    for name in options.only or ATTACKS:
        results: dict[str, dict[str, float]] = {}
        for side in sides:
            print(f"{name} on {side.name}: {ATTACKS[name].title}", file=sys.stderr)
            base = Path(tempfile.mkdtemp(prefix="roquet-attack-", dir=options.dir))
            try:
                results[side.name] = measure(
                    side,
                    ATTACKS[name],
                    base,
                    rounds=options.rounds,
                    scale=options.scale,
                    wait_s=options.wait,
                )
            finally:
                shutil.rmtree(base, ignore_errors=True)
        lines += lines_of(name, results.get("java", {}), results["roquet"])
    facts: dict[str, object] = {"rounds": options.rounds, "scale": options.scale}
    return show(lines, facts, json_file=options.json, is_checked=options.check)


if __name__ == "__main__":
    sys.exit(main())
