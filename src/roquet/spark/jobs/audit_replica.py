"""Compares two copies of one log byte by byte.

A replica has the same bytes at the same physical offsets. Tasks read both and compare a digest of
each block; where it differs they compare the bytes, so that a finding names the exact offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from roquet.runtime.files import Files
from roquet.spark.jobs.audit_findings import Findings
from roquet.spark.log.store_files import LogFiles, open_log
from roquet.storefiles import faults as kinds
from roquet.storefiles.window import Window

BLOCK_BYTES = 1 << 20


class Stripe(NamedTuple):
    """The physical offsets that one task compares."""

    start: int
    stop: int


@dataclass
class ReplicaTaskResult:
    """The result of comparing a stripe.

    Attributes:
        digest: The digest of the bytes, if the replica has the same.
        findings: The differences.
    """

    digest: str = ""
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class ReplicaWorker:
    """Sent to executors: compares one stripe."""

    store: str
    replica: str

    def __call__(self, stripe: Stripe) -> ReplicaTaskResult:
        """Compare a stripe; adjacent blocks that differ are one finding."""
        files, seen, digest = Files(), ReplicaTaskResult(), blake2b(digest_size=16)
        ours, theirs = open_log(files, [self.store]), open_log(files, [self.replica])
        run: list[int] = []
        for start in range(stripe.start, stripe.stop, BLOCK_BYTES):
            stop = min(start + BLOCK_BYTES, stripe.stop)
            mine, other = read_bytes(ours, start, stop), read_bytes(theirs, start, stop)
            digest.update(mine)
            found = first_and_last_difference(mine, other)
            if found is None:
                self._tell(run, seen.findings)
                continue
            first, last = found
            run = [run[0] if run else start + first, start + last + 1]
        self._tell(run, seen.findings)
        if not seen.findings.listed:
            seen.digest = digest.hexdigest()
        return seen

    def _tell(self, run: list[int], findings: Findings) -> None:
        if run:
            first, end = run
            detail = f"other bytes in {self.replica}, the first at {first}, the last at {end - 1}"
            findings.tell(kinds.REPLICA, f"physical offset {first}", detail)
            run.clear()


def plan_stripes(start: int, stop: int, stripe_bytes: int) -> list[Stripe]:
    """Split a range of the log into stripes."""
    return [Stripe(at, min(at + stripe_bytes, stop)) for at in range(start, stop, stripe_bytes)]


def read_bytes(log: LogFiles, start: int, stop: int) -> bytes:
    """Read the bytes between two physical offsets; fewer if a file is missing."""
    parts = []
    while start < stop:
        segment = log.segment_of(start)
        if segment is None:
            break
        size = min(stop, segment.end) - start
        with Window(log.files, segment, limit=start) as window:
            parts.append(bytes(window.need(start, size)))
        start += size
    return b"".join(parts)


def first_and_last_difference(mine: bytes, other: bytes) -> tuple[int, int] | None:
    """Return the positions of the first and last byte that differ; ``None`` if all are equal."""
    if mine == other:
        return None
    size = min(len(mine), len(other))
    left = np.frombuffer(mine, dtype=np.uint8, count=size)
    right = np.frombuffer(other, dtype=np.uint8, count=size)
    places: Sequence[int] = np.flatnonzero(left != right).tolist()
    first = places[0] if places else size
    last = places[-1] if len(mine) == len(other) else max(len(mine), len(other)) - 1
    return first, last
