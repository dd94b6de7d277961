"""Where rows are measured: folders, running sides and loads under the same conditions.

Owns the yardstick. Before every load everything is synced and free memory is filled with page
cache; sides that are compared run at the same time, and each has had a load of the same length
before it is measured (docs/decisions/0009-warm-peer.md).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.load import BenchmarkError, build_loadgen, run_loadgen
from benchmarks.memory import Ballast
from benchmarks.progress import say
from benchmarks.rows import BATCH, FAR, FAR_PERCENT, PULL, SEND, Row
from benchmarks.sides import Running, Settings, Side, stopping
from roquet.runtime.memory import physical_memory_bytes

LOAD_WARM_S = 2.0
"""Load before the measured one, on a broker that is warm already."""

RECORD_BYTES = 1_190
"""What a message of 1 KiB takes in the log, with its properties."""

PULLED_BYTES = 1 << 30
FILL_S = 1.0
FILL_BYTES_A_SECOND_MIN = 10 << 20
STORES_MAX_BYTES = 24 << 30
DISK_SHARE_MAX = 0.4

WARM_TOPIC, PAD_TOPIC = "Warm", "Pad"


@dataclass(frozen=True)
class Lengths:
    """How long things take.

    Attributes:
        load_s: The measured part of a load.
        warm_s: Load on a broker before its first row; 0 leaves it as it started.
        mixed_s: The measured part of the row ``mixed``.
    """

    load_s: float = 5.0
    warm_s: float = 12.0
    mixed_s: float = 120.0


class Lab:
    """Runs sides and loads.

    Args:
        base: A folder for everything.
        lengths: How long loads take.
        ballast: Fills free memory before each load; ``None`` leaves it as it is.
    """

    def __init__(self, base: Path, lengths: Lengths, ballast: Ballast | None) -> None:
        self.base = base
        self.lengths = lengths
        self._ballast = ballast
        self._program = build_loadgen(base)
        self._topics = 0

    def settle(self) -> None:
        """Write what is pending, and fill free memory, so that no load pays for another one."""
        os.sync()
        if self._ballast is not None:
            self._ballast.fill()

    def load(
        self,
        running: Running,
        arguments: Sequence[str],
        seconds: float | None = None,
        *,
        warm: float = LOAD_WARM_S,
    ) -> dict[str, float]:
        """Run a load and return its numbers."""
        self.settle()
        result = run_loadgen(
            self._program,
            running.address,
            running.pid,
            arguments,
            seconds=self.lengths.load_s if seconds is None else seconds,
            warm=warm,
        )
        if result.first_failure:
            say(result.first_failure)
        return result.values

    def new_topic(self, prefix: str) -> str:
        """A name that no load has used."""
        self._topics += 1
        return f"{prefix}{self._topics}"

    def fill(
        self, running: Running, topic: str, log_bytes: float, load: Sequence[str] = BATCH
    ) -> None:
        """Store messages until they take about so many bytes of the log.

        Raises:
            BenchmarkError: The broker is too slow for that.
        """
        left = log_bytes / RECORD_BYTES
        for _ in range(1 + int(log_bytes / FILL_BYTES_A_SECOND_MIN)):
            left -= self.load(running, (*load, "-topic", topic), FILL_S, warm=0)["messages"]
            if left <= 0:
                return
        raise BenchmarkError(f"{topic} got {left:,.0f} messages too few")

    def warm_up(self, running: Running, rows: Sequence[Row]) -> None:
        """Load a broker that was just started, in the ways of its rows."""
        warm_s = self.lengths.warm_s
        if not warm_s:
            return
        self.load(running, (*SEND, "-topic", WARM_TOPIC), warm_s, warm=0)
        if any(row.stored for row in rows):
            self.load(running, (*PULL, "-topic", WARM_TOPIC), warm_s, warm=0)

    def measure(self, running: Running, row: Row) -> dict[str, float]:
        """Run the load of a row.

        Raises:
            BenchmarkError: Not a single message came through.
        """
        topic = self.new_topic("Load")
        if row.stored:
            self.fill(running, topic, PULLED_BYTES, row.stored)
            if row.settings == FAR:
                behind = physical_memory_bytes() * FAR_PERCENT / 100
                self.fill(running, PAD_TOPIC, 2 * behind)
        seconds = self.lengths.mixed_s if row.name == "mixed" else None
        values = self.load(running, (*row.arguments, "-topic", topic), seconds)
        if not values["messages"]:
            raise BenchmarkError("no message was stored or read")
        return values

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder that is removed at the end of the block."""
        folder = Path(tempfile.mkdtemp(dir=self.base))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def running(self, side: Side, settings: Settings) -> Iterator[Running]:
        """A side with a folder of its own."""
        with self.folder() as folder, stopping(side.start(folder, settings)) as running:
            yield running


class Stage:
    """All sides at the same time with the same settings, warm.

    They are started when they are needed, and once more when their stores have grown too large for
    the disk.

    Args:
        lab: Where they run.
        sides: The sides by name.
        settings: Those of their brokers.
        rows: What will be measured.
    """

    def __init__(
        self, lab: Lab, sides: Mapping[str, Side], settings: Settings, rows: Sequence[Row]
    ) -> None:
        self._lab = lab
        self._sides = sides
        self._settings = settings
        self._rows = rows
        self._stack = ExitStack()
        self._base: Path | None = None
        self._running: dict[str, Running] = {}
        self.starts_s: dict[str, list[float]] = {name: [] for name in sides}

    def running(self) -> dict[str, Running]:
        """The sides, ready for a row."""
        if self._base is not None:
            used = used_bytes(self._base)
            if used > allowed_bytes(used + shutil.disk_usage(self._base).free):
                say("the stores are large: starting again with empty ones")
                self.close()
        if self._base is None:
            self._start()
        return self._running

    def _start(self) -> None:
        self._base = self._stack.enter_context(self._lab.folder())
        for name, side in self._sides.items():
            started = side.start(self._base / name, self._settings)
            self._running[name] = self._stack.enter_context(stopping(started))
            self.starts_s[name].append(started.start_s)
            say(f"{name}: first message after {started.start_s:.2f} s")
        for name, started in self._running.items():
            if self._lab.lengths.warm_s:
                say(f"{name}: {self._lab.lengths.warm_s:g} s of load before it is measured")
                self._lab.warm_up(started, self._rows)

    def close(self) -> None:
        """Stop all of them."""
        self._running = {}
        self._base = None
        self._stack.close()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def allowed_bytes(free_bytes: int) -> int:
    """How large all stores may become; puts are refused on a disk that is nearly full.

    Example:
        >>> allowed_bytes(10 << 30) >> 30, allowed_bytes(1 << 40) >> 30
        (4, 24)
    """
    return min(int(free_bytes * DISK_SHARE_MAX), STORES_MAX_BYTES)


def used_bytes(folder: Path) -> int:
    """The disk space of a folder's files."""
    used = 0
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # brokers delete files
        used += status.st_blocks * 512
    return used
