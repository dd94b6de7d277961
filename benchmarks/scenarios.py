"""Rows that are more than one load on running brokers: starts, restarts, cold files, many topics.

Each scenario runs one side by itself, from nothing, and returns its numbers.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab import Lab
from benchmarks.load import BenchmarkError, fill_queues, idle_connections
from benchmarks.progress import say
from benchmarks.rows import ASYNC, FRESH, JSON, LOADS, PULL, PULL_COLD, RESTART, SEND, START_KEY
from benchmarks.rows import TOPICS as TOPICS_ROW
from benchmarks.sides import Side, stopping
from roquet.runtime.memory import address_of, is_resident
from tests.interop.javabroker import write_topics

COLD_SEGMENT_BYTES = 128 << 20
COLD_PAD_BYTES = 4 * COLD_SEGMENT_BYTES
COLD_TIMEOUT_S = 600
RESIDENT_MAX = 0.05
DD_KEY = "dd_MB_per_s"
LOG_RATE_KEY = "MB_per_s"

IDLE_CONNECTIONS = 2_000
MAPPINGS_SHARE = 0.75
TOPIC_PREFIX = "Many"


@dataclass(frozen=True)
class Sizes:
    """How large scenarios are.

    Attributes:
        cold_bytes: The log that is read from disk.
        restart_bytes: The log of a broker that is killed.
        topics: Topics of the row ``topics``.
        topic_queues: Queues of each of them.
    """

    cold_bytes: int = 2 << 30
    restart_bytes: int = 4 << 30
    topics: int = 10_000
    topic_queues: int = 8


def run(lab: Lab, name: str, side: Side, sizes: Sizes) -> dict[str, float]:
    """Measure one side."""
    return SCENARIOS[name](lab, side, sizes)


def start_fresh(lab: Lab, side: Side, _: Sizes) -> dict[str, float]:
    """From nothing to the first stored message."""
    lab.settle()
    with lab.running(side, ASYNC) as running:
        return {START_KEY: running.start_s}


def restart_killed(lab: Lab, side: Side, sizes: Sizes) -> dict[str, float]:
    """From kill -9 to the next stored message."""
    with lab.folder() as folder:
        with stopping(side.start(folder, ASYNC)) as running:
            lab.fill(running, "Restart", sizes.restart_bytes)
            running.kill()
        lab.settle()
        with stopping(side.start(folder, ASYNC)) as running:
            return {START_KEY: running.start_s}


def pull_cold(lab: Lab, side: Side, sizes: Sizes) -> dict[str, float]:
    """A topic that is read once, with none of it in memory; then the same files with ``dd``."""
    settings = {**ASYNC, "mappedFileSizeCommitLog": COLD_SEGMENT_BYTES}
    topic = "Cold"
    with lab.folder() as folder:
        with stopping(side.start(folder, settings)) as running:
            lab.fill(running, topic, sizes.cold_bytes)
            full = full_segments(sorted((folder / "store" / "commitlog").iterdir()))
            lab.fill(running, "Pad", COLD_PAD_BYTES)
        # The kernel keeps pages that a process has mapped, so another process reads them. At its
        # start it looks at the last files of the log, which are others.
        with stopping(side.start(folder, settings)) as running:
            lab.warm_up(running, LOADS[:1])
            lab.settle()
            drop_cache(full)
            resident = resident_share(full)
            say(f"{side.name}: {resident:.0%} of the log is in memory")
            load = (*PULL, *JSON, "-topic", topic, "-once")
            values = lab.load(running, load, COLD_TIMEOUT_S, warm=0)
        values[LOG_RATE_KEY] = values["msgs_per_s"] * largest_record(full[-1]) / 1e6
        drop_cache(full)
        values[DD_KEY] = read_plainly(full)
    if resident > RESIDENT_MAX:
        raise BenchmarkError(f"{resident:.0%} of the log stayed in memory")
    return values


def many_topics(lab: Lab, side: Side, sizes: Sizes) -> dict[str, float]:
    """Start, memory and sends of a broker with many topics, after a restart."""
    names = [f"{TOPIC_PREFIX}{number:05}" for number in range(sizes.topics)]
    filled = queues_to_fill(sizes, mappings_max())
    with lab.folder() as folder:
        write_topics(folder / "store", dict.fromkeys(names, sizes.topic_queues))
        with stopping(side.start(folder, ASYNC)) as running:
            count = fill_queues(running.address, names, queues=filled)
        say(f"{side.name}: {count:,} queues with a message each; starting again")
        with stopping(side.start(folder, ASYNC)) as running:
            with idle_connections(running.address, IDLE_CONNECTIONS):
                lab.warm_up(running, ())
                values = lab.load(
                    running,
                    (*SEND, *JSON, "-topic", TOPIC_PREFIX, "-topics", str(sizes.topics),
                     "-queues", str(filled)),
                )  # fmt: skip
            return {**values, START_KEY: running.start_s}


SCENARIOS: dict[str, Callable[[Lab, Side, Sizes], dict[str, float]]] = {
    FRESH: start_fresh,
    PULL_COLD: pull_cold,
    TOPICS_ROW: many_topics,
    RESTART: restart_killed,
}


def mappings_max() -> int:
    """How many mappings the kernel allows a process."""
    return int(Path("/proc/sys/vm/max_map_count").read_text())


def queues_to_fill(sizes: Sizes, mappings: int) -> int:
    """In how many queues of a topic there is a message.

    Apache RocketMQ maps a file of every queue that has messages, and the kernel limits mappings.

    Example:
        >>> queues_to_fill(Sizes(), 65_530), queues_to_fill(Sizes(topics=100), 65_530)
        (4, 8)
    """
    return max(min(sizes.topic_queues, int(mappings * MAPPINGS_SHARE) // sizes.topics), 1)


def largest_record(segment: Path, records: int = 100) -> int:
    """The size of the largest of a log file's first records."""
    largest = 0
    with segment.open("rb") as file:
        for _ in range(records):
            head = file.read(4)
            size = struct.unpack(">i", head)[0] if len(head) == len(b"size") else 0
            if size <= 0:
                break
            largest = max(largest, size)
            file.seek(size - 4, os.SEEK_CUR)
    return largest


def full_segments(segments: Sequence[Path]) -> list[Path]:
    """The files of a log without the one that is being written and those made ahead."""
    return [path for path in segments if largest_record(path, 1)][:-1]


def drop_cache(files: Sequence[Path]) -> None:
    """Drop the page cache of files, after what is dirty was written."""
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def resident_share(files: Sequence[Path], step_bytes: int = 1 << 20) -> float:
    """The part of files that is in memory, by samples of a page."""
    seen = found = 0
    for path in files:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
            address = address_of(mapping)
            for offset in range(0, len(mapping), step_bytes):
                seen += 1
                found += is_resident(address + offset, mmap.PAGESIZE)
    return found / seen if seen else 0.0


def read_plainly(files: Sequence[Path]) -> float:
    """MB per second of ``dd``, one file after the other."""
    began = time.monotonic()
    for path in files:
        subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"], check=True)
    return sum(path.stat().st_size for path in files) / (time.monotonic() - began) / 1e6
