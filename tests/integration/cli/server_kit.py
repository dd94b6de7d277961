"""Servers as real processes: started, listened to, and always ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

END_TIMEOUT_S = 120
FREE_PORTS = ("--port", "0", "--namesrv-port", "0", "--json")
MAIN = "from roquet.cli.main import main; main()"


class ServerProcess:
    """A ``roquet`` command that keeps running.

    Args:
        arguments: The command and its flags.
        home: Its home and working directory.
        environment: Further variables.
        prelude: Python that runs in the process before the command.
    """

    def __init__(
        self,
        *arguments: str,
        home: Path,
        environment: dict[str, str] | None = None,
        prelude: str = "",
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{prelude}\n{MAIN}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=home,
            env=clean_environment(home) | (environment or {}),
        )

    def facts(self) -> dict[str, Any]:
        """The line that it prints once it is ready; only with ``--json``."""
        line = self.first_line()
        facts: dict[str, Any] = json.loads(line)
        return facts

    def first_line(self) -> str:
        """The first line on standard output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.ended()
        return line

    def ended(self) -> tuple[int, str, str]:
        """Wait for the exit: exit code, the rest of standard output, standard error."""
        assert self.process.stdout is not None
        code = self.process.wait(END_TIMEOUT_S)
        out = self.process.stdout.read()
        self._errors.seek(0)
        return code, out, self._errors.read()

    def close(self) -> None:
        """End it if it still runs, and close its output."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        return self.ended()


@contextmanager
def server(
    *arguments: str, home: Path, environment: dict[str, str] | None = None, prelude: str = ""
) -> Iterator[ServerProcess]:
    """A running command, killed at the end if it still runs."""
    running = ServerProcess(*arguments, home=home, environment=environment, prelude=prelude)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def server_on_terminal(
    *arguments: str, home: Path, prelude: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A running command whose controlling terminal is a new one, and the other side of that."""
    ours, theirs = os.openpty()
    control = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{control}\n{prelude}\n{MAIN}", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=home,
        env=clean_environment(home),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        with suppress(OSError):
            os.close(ours)


def run(
    *arguments: str, home: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command that is expected to exit by itself."""
    return subprocess.run(
        [sys.executable, "-m", "roquet", *arguments],
        capture_output=True,
        text=True,
        cwd=home,
        env=clean_environment(home) | (environment or {}),
        timeout=END_TIMEOUT_S,
        check=False,
    )


def clean_environment(home: Path) -> dict[str, str]:
    """This process's variables, with another home and none of RocketMQ's."""
    kept = {
        key: text for key, text in os.environ.items() if not key.startswith(("NAMESRV", "ROCK"))
    }
    return kept | {"HOME": str(home)}


def started(running: ServerProcess) -> tuple[str, dict[str, Any]]:
    """Wait until a broker is ready; return its address, and all that it reports."""
    facts = running.facts()
    broker: dict[str, Any] = facts["broker"] if facts["role"] == "dev" else facts
    return str(broker["address"]), facts
