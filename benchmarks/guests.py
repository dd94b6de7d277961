"""What is measured beside the two sides, on request.

Owns the common part of guests: a broker that was just started, the loop in C that shows what the
machine can do (``limits/limits.c``), and the CPU time and memory of servers that have a client of
their own (:mod:`benchmarks.kafka`, :mod:`benchmarks.nats`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.attacks.watch import MemoryWatch
from benchmarks.lab import RECORD_BYTES, Lab
from benchmarks.load import BenchmarkError
from benchmarks.rows import ANONYMOUS, BINARY, CPU_KEY, RATE_KEY, SYNC, Row
from benchmarks.sides import JavaSide, Running, stopping, wait_listens
from tests.interop.process import ChildProcess, find_free_port

LIMITS_SOURCE = Path(__file__).parent / "limits" / "limits.c"
MIB = 1 << 20


class Guest(Protocol):
    """Something that is measured for some of the rows."""

    name: str

    def can(self, row: Row) -> bool:
        """Whether it can do the work of a row."""
        ...

    def measure(self, lab: Lab, row: Row) -> dict[str, float]:
        """Do it once."""
        ...

    def close(self) -> None:
        """Stop what is running."""
        ...


class FreshApache:
    """An Apache broker that is started for a load, and has no other before it."""

    name = "Apache, cold"

    def __init__(self) -> None:
        self._side = JavaSide()

    def can(self, row: Row) -> bool:
        """Every load."""
        return bool(row.arguments)

    def measure(self, lab: Lab, row: Row) -> dict[str, float]:
        """Start it, measure it, stop it."""
        with lab.running(self._side, row.settings) as running:
            return lab.measure(running, row)

    def close(self) -> None:
        """Nothing is left."""


class Limit:
    """The loop in C that moves the same bytes and does nothing else.

    Raises:
        BenchmarkError: There is no C compiler.
    """

    name = "C loop"

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise BenchmarkError("a C compiler is missing; the limits are built with it")
        self._program = folder / "limits-program"
        done = subprocess.run(
            [compiler, "-O2", "-o", str(self._program), str(LIMITS_SOURCE)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BenchmarkError(f"the limits do not build:\n{done.stderr}")

    def can(self, row: Row) -> bool:
        """Plain sends and pulls."""
        return row.has_limit

    def measure(self, lab: Lab, row: Row) -> dict[str, float]:
        """Start it, measure it, stop it."""
        with lab.folder() as folder, stopping(self._start(folder, row)) as running:
            return lab.load(running, (*row.arguments, *BINARY))

    def _start(self, folder: Path, row: Row) -> Running:
        port = find_free_port()
        address = f"127.0.0.1:{port}"
        arguments = [str(port), str(folder / "log"), str(RECORD_BYTES)]
        if row.settings == SYNC:
            arguments.append("sync")
        process = ChildProcess(
            "limits", [str(self._program), *arguments], folder=folder, environment=os.environ
        )
        wait_listens(process, address)
        return Running(process, process, address, "", 0.0)

    def close(self) -> None:
        """Nothing is left."""


def cpu_s(pid: int) -> float:
    """User and system CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def watched(pid: int, values: dict[str, float]) -> Iterator[None]:
    """Add a server's CPU time and memory to what its client reports within the block.

    The client has to set the rate and the number of messages.
    """
    began_s = cpu_s(pid)
    with MemoryWatch(pid) as memory:
        yield
    values[CPU_KEY] = 1e6 * (cpu_s(pid) - began_s) / values["messages"]
    values[ANONYMOUS] = memory.most_bytes / MIB


def result(rate: float, messages: float) -> dict[str, float]:
    """What a client of its own has done."""
    return {RATE_KEY: rate, "messages": messages, "failed": 0.0}
