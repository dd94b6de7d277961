"""Stages of a batch at which Spark is held, in whichever of its processes, and perhaps killed.

Files of a folder say who is held where: a test makes one for a stage, the process that comes there
makes another, and waits until the first is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 240
_LOOK_S = 0.02


class Stages:
    """The stages at which somebody is held.

    Args:
        folder: For the files; it must be there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _file(self, stage: str, number: int, kind: str) -> Path:
        return self.folder / f"{stage} {number} {kind}"

    def hold(self, stage: str, number: int) -> None:
        """Have whoever comes to a stage wait there."""
        self._file(stage, number, "held").touch()

    def let_go(self, stage: str, number: int) -> None:
        """Have them go on."""
        self._file(stage, number, "held").unlink()

    def is_reached(self, stage: str, number: int) -> bool:
        """Whether somebody is there."""
        return self._file(stage, number, "reached").exists()

    def come(self, stage: str, number: int) -> None:
        """Come to a stage: in the process that may be held."""
        held = self._file(stage, number, "held")
        if held.exists():
            self._file(stage, number, "reached").touch()
            while held.exists():
                time.sleep(_LOOK_S)


def wait_until(is_so: Callable[[], bool], told: Callable[[], str] = str) -> None:
    """Wait for something that takes a while.

    Args:
        is_so: Whether it is there; may raise what makes waiting useless.
        told: What is known if it does not come.
    """
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, told()
        time.sleep(_LOOK_S)


class Driver:
    """A program that runs Spark, with what it prints in files."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path, errors: Path) -> None:
        self.process = process
        self._out, self._errors = out, errors

    @property
    def output(self) -> str:
        """What it printed."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """What it said on standard error."""
        return self._errors.read_text()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that it does."""

        def is_done() -> bool:
            found = is_so()
            assert found or self.process.poll() is None, self.errors
            return found

        wait_until(is_done, lambda: self.errors)

    def kill(self) -> None:
        """Kill it and its JVM, as a machine that fails does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, number: signal.Signals) -> int:
        """Send it a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)


@contextmanager
def driver(folder: Path, module: str, arguments: Sequence[str]) -> Iterator[Driver]:
    """Run a module of Python as a program; at the end of the block it is killed if it runs."""
    out, errors = folder / f"{module}.out", folder / f"{module}.err"
    with out.open("wb") as output, errors.open("wb") as error_output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            stdout=output,
            stderr=error_output,
            start_new_session=True,
        )
    started = Driver(process, out, errors)
    try:
        yield started
    finally:
        if process.poll() is None:
            started.kill()


class Writer:
    """A ``tests.spark.table_writer``, killed when it says a word for the so-and-so-many-th time."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], end: tuple[str, int] | None
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.table_writer", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._end = end
        self.errors = ""
        self._threads = [threading.Thread(target=each) for each in (self._watch, self._listen)]
        for thread in self._threads:
            thread.start()

    def _watch(self) -> None:
        assert self.process.stdout is not None
        said = 0
        for line in self.process.stdout:
            said += self._end is not None and line.strip() == self._end[0]
            if self._end is not None and said == self._end[1]:
                self.process.kill()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def wait(self) -> int:
        code = self.process.wait(WAIT_S)
        for thread in self._threads:
            thread.join()
        return code
