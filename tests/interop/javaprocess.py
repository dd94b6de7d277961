"""One Java virtual machine of the oracle as a child process with a log file.

A process that the harness started is always ended by it: by `stop` or `kill`, at the end of the
`with` block, and by the kernel when the test process itself dies (where `setpriv` exists).
"""

from __future__ import annotations

import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.interop.javabuild import JavaToolkit

LOG_TAIL_LINES = 40
STOP_TIMEOUT_S = 60

# Small and quick to start: no optimising compiler, no parallel collector.
QUICK_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# RocketMQ frees its mapped buffers through internals of the JDK.
OPENED_INTERNALS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)

# Below the kernel's ephemeral range, so that no outgoing connection takes a port meanwhile.
PORT_RANGE = range(20_000, 32_000)


class JavaProcessError(Exception):
    """A Java process did not do what was asked in time; the message ends with its log's tail."""


def find_free_port(*also: int) -> int:
    """A loopback port that is free together with its neighbours at the distances `also`.

    A broker listens on three: its port, port - 2 (fast) and port + 1 (replication).
    """
    source = random.SystemRandom()
    for _ in range(200):
        port = source.choice(PORT_RANGE)
        if all(_can_bind(port + distance) for distance in (0, *also)):
            return port
    raise JavaProcessError(f"no free port in {PORT_RANGE}")


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


class JavaProcess:
    """A running Java program.

    Args:
        toolkit: The built classpath.
        name: Short name, for the log file and for messages.
        main_class: What to run.
        arguments: Its arguments.
        folder: Its home, working directory and place of its log; made when missing.
        jvm_options: How the virtual machine runs.
        piped: Whether standard input and output are pipes (`stdin`, `stdout`); if not, output
            goes to the log as standard error always does.
    """

    def __init__(
        self,
        toolkit: JavaToolkit,
        name: str,
        main_class: str,
        *,
        arguments: list[str],
        folder: Path,
        jvm_options: Sequence[str] = QUICK_JVM,
        piped: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "conf").mkdir(exist_ok=True)
        self.name = name
        self.log_path = folder / f"{name}.log"
        command = [
            toolkit.java,
            *jvm_options,
            *OPENED_INTERNALS,
            f"-Duser.home={folder}",
            "-cp",
            toolkit.classpath,
            main_class,
            *arguments,
        ]
        setpriv = shutil.which("setpriv")
        if setpriv is not None:
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={"ROCKETMQ_HOME": str(folder), "LC_ALL": "C.UTF-8"},
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
        return self._process.poll() is None

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace")

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
        """Asks the process to end (SIGTERM) and waits until it has run its shutdown hooks."""
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
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def error(self, what: str) -> JavaProcessError:
        return JavaProcessError(f"{self.name}: {what}\n{self.log_tail()}")

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
