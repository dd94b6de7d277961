"""How many tests each folder has, and how long they take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

DEPTH = 3
"""How many names of a path make a folder: ``tests/unit/store`` is one, its own folders are not."""


class Phase(NamedTuple):
    """The set-up, the call or the tear-down of a test."""

    nodeid: str
    duration_s: float


def folder_of(nodeid: str) -> str:
    folder = PurePosixPath(nodeid.partition("::")[0]).parent
    return "/".join(folder.parts[:DEPTH])


def table(phases: Iterable[Phase]) -> Iterator[str]:
    """The lines of the table, the slowest folder first.

    Seconds are those of all processes together, with what fixtures take.
    """
    tests: dict[str, set[str]] = defaultdict(set)
    seconds: dict[str, float] = defaultdict(float)
    for phase in phases:
        folder = folder_of(phase.nodeid)
        tests[folder].add(phase.nodeid)
        seconds[folder] += phase.duration_s
    rows = sorted(seconds, key=lambda folder: (-seconds[folder], folder))
    yield f"{'tests':>6} {'seconds':>9}  folder"
    for folder in rows:
        yield f"{len(tests[folder]):>6} {seconds[folder]:>9.1f}  {folder}"
    in_all = sum(len(each) for each in tests.values())
    yield f"{in_all:>6} {sum(seconds.values()):>9.1f}  in all"
