"""Runs an attack next to a healthy client, and measures both.

Owns the order of events: the healthy client alone, the strike, some time after it, and the
server's memory all along.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.attacks.catalogue import Attack, Target, prepared
from benchmarks.attacks.healthy import Report
from benchmarks.load import BenchmarkError
from tests.interop.process import launched_by

ROOT = Path(__file__).resolve().parents[2]
CALM_S = 2.0
AFTER_S = 2.0
MEMORY_POLL_S = 0.02
REPORT_TIMEOUT_S = 300.0


def anonymous_bytes(pid: int) -> int:
    """The current anonymous memory of a process; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(lines[0].split()[1]) << 10 if lines else 0


class MemoryWatch:
    """The peak anonymous memory of a process within the block."""

    def __init__(self, pid: int) -> None:
        self.most_bytes = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(MEMORY_POLL_S):
            self.most_bytes = max(self.most_bytes, anonymous_bytes(self._pid))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@dataclass(frozen=True)
class Outcome:
    """The effect of one strike.

    Attributes:
        calm_p99_s: The healthy client's p99 before the strike.
        p99_s: The same from the start of the strike until some time after its end.
        worst_s: The worst latency of that time.
        strike_s: How long the strike took.
        refused: Healthy requests that got an error response.
        broken: Healthy connections that were closed by the server.
        acknowledged: Messages of the healthy client that were acknowledged.
        lost: Acknowledged messages that are missing.
        before_bytes: Anonymous memory of the server before the strike.
        most_bytes: Its peak during and after the strike.
    """

    calm_p99_s: float
    p99_s: float
    worst_s: float
    strike_s: float
    refused: int
    broken: int
    acknowledged: int
    lost: int
    before_bytes: int
    most_bytes: int


def limited(attack: Attack, *, scale: float = 1.0) -> AbstractContextManager[None]:
    """Limit the open files of servers that start within the block, as the attack requires."""
    if not attack.open_files:
        return nullcontext()
    limit = int(attack.open_files * scale)
    return launched_by("prlimit", f"--nofile={limit}:{limit}")


def p99(values: list[float]) -> float:
    """The 99th percentile; 0 if there are no values."""
    if len(values) < 2:
        return max(values, default=0.0)
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def strike(
    attack: Attack,
    target: Target,
    pid: int,
    *,
    scale: float = 1.0,
    calm_s: float = CALM_S,
    after_s: float = AFTER_S,
) -> Outcome:
    """Attack once.

    Args:
        attack: The attack.
        target: Its target.
        pid: The process of the server that is attacked.
        scale: The fraction of the full size.
        calm_s: How long the healthy client works before the strike.
        after_s: How long it continues after the strike.
    """
    address = target.namesrv if attack.on_namesrv else target.broker
    with prepared(attack, target, scale) as hit, _healthy(address, attack.healthy) as healthy:
        time.sleep(calm_s)
        before_bytes = anonymous_bytes(pid)
        with MemoryWatch(pid) as memory:
            began = time.monotonic()
            hit()
            ended = time.monotonic()
            time.sleep(after_s)
        report = _finish(healthy)
    calm = [latency for due, latency in report.samples if due + latency < began]
    stormy = [latency for due, latency in report.samples if due + latency >= began]
    return Outcome(
        calm_p99_s=p99(calm),
        p99_s=p99(stormy),
        worst_s=max(stormy, default=0.0),
        strike_s=ended - began,
        refused=sum(report.refused.values()),
        broken=report.broken,
        acknowledged=report.acknowledged,
        lost=report.lost,
        before_bytes=before_bytes,
        most_bytes=memory.most_bytes,
    )


def _healthy(address: str, kind: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.attacks.healthy", address, kind],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        process.kill()
        raise BenchmarkError(f"the healthy client could not work at {address}")
    return process


def _finish(process: subprocess.Popen[str]) -> Report:
    try:
        output, _ = process.communicate(timeout=REPORT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise BenchmarkError("the healthy client was not answered within its time") from None
    if process.returncode != 0:
        raise BenchmarkError("the healthy client failed")
    values = json.loads(output)
    values["samples"] = [tuple(each) for each in values["samples"]]
    return Report(**values)
