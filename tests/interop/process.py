"""A program that the tests started, as a child process with a log file.

A process that the harness started is always ended by it: by `stop` or `kill`, at the end of the
`with` block, and by the kernel when the test process itself dies (where `setpriv` exists).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

LOG_TAIL_LINES = 40
STOP_TIMEOUT_S = 120

# Below the kernel's ephemeral range, so that no outgoing connection takes a port meanwhile. Each
# test process has a share, so that no other one takes the port of a server which restarts.
PORTS_EACH = 1_500
PORT_SHARES = 8
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORT_RANGE = range(20_000, 32_000)[_worker % PORT_SHARES * PORTS_EACH :][:PORTS_EACH]


class ProcessError(Exception):
    """A process did not do what was asked in time; the message ends with its log's tail."""


def find_free_port(*also: int) -> int:
    """A loopback port that is free together with its neighbours at the distances `also`.

    A broker listens on three: its port, port - 2 (fast) and port + 1 (replication).
    """
    source = random.SystemRandom()
    for _ in range(200):
        port = source.choice(PORT_RANGE)
        if all(_can_bind(port + distance) for distance in (0, *also)):
            return port
    raise ProcessError(f"no free port in {PORT_RANGE}")


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


_launcher: ContextVar[tuple[str, ...]] = ContextVar("launcher", default=())


@contextmanager
def launched_by(*command: str) -> Iterator[None]:
    """Have processes that start within the block launched by a program such as `prlimit`."""
    token = _launcher.set(command)
    try:
        yield
    finally:
        _launcher.reset(token)


class Listening(Protocol):
    """Something that is reached at `address`, `host:port`."""

    @property
    def address(self) -> str: ...


class ChildProcess:
    """A running program.

    Args:
        name: Short name, for the log file and for messages.
        command: The program and its arguments.
        folder: Its working directory and place of its log; made when missing.
        environment: All of its environment.
        piped: Whether standard input and output are pipes (`stdin`, `stdout`); if not, output
            goes to the log as standard error always does.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        piped: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = folder / f"{name}.log"
        command = [*_launcher.get(), *command]
        setpriv = shutil.which("setpriv")
        if setpriv is not None:
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """What it ended with, None while it runs."""
        return self._process.poll()

    def log_text(self) -> str:
        """What this process has printed; one before it may have used the same file."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self) -> str:
        lines = self.log_text().splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"--- end of {self.log_path} ---", *lines])

    def wait_log(self, text: str, timeout_s: float) -> None:
        """Waits until the log contains `text`; the process ending first is an error."""
        deadline = time.monotonic() + timeout_s
        while text not in self.log_text():
            if not self.is_running():
                raise self.error(f"ended with {self._process.returncode} before {text!r}")
            if time.monotonic() > deadline:
                raise self.error(f"did not log {text!r} within {timeout_s} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """Terminates the process (SIGTERM) and waits until it has run its shutdown hooks."""
        if self.is_running():
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            message = self.error(f"did not stop within {STOP_TIMEOUT_S} s")
            self.kill()
            raise message from None
        self._close_pipes()

    def kill(self) -> None:
        """Ends the process at once (SIGKILL); fine when it has ended already."""
        self.end()
        self._close_pipes()

    def end(self) -> None:
        """Kills the process but leaves the pipes, so that what it printed can still be read."""
        self._process.kill()
        self._process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspends the process, so that its clients wait."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def error(self, what: str) -> ProcessError:
        return ProcessError(f"{self.name}: {what}\n{self.log_tail()}")

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if kind is not None:
            print(self.log_tail())  # noqa: T201  pytest shows it below the failure
