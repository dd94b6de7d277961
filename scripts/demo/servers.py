"""A running ``roquet dev``, and commands run as a user would."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from roquet.cli.startup_banner import DevBanner

STOP_TIMEOUT_S = 30


class Failed(Exception):
    """The demo failed."""


class Dev:
    """A running ``roquet dev``."""

    def __init__(self, folder: Path) -> None:
        flags = ["--port", "0", "--namesrv-port", "0", "--json"]
        command = [sys.executable, "-m", "roquet", "dev", str(folder), *flags]
        click.echo("$ roquet dev " + shlex.join([str(folder), *flags]))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed("roquet dev did not start; its words are above")
        self.facts = msgspec.json.decode(line, type=DevBanner)
        click.echo(f"name server {self.namesrv}, broker {self.facts.broker.address}")

    @property
    def namesrv(self) -> str:
        """The address of the name server."""
        return self.facts.namesrv.address

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the process to exit."""
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def dev(folder: Path) -> Iterator[Dev]:
    """A running ``roquet dev`` that does not outlive the block."""
    running = Dev(folder)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
        if running.process.stdout is not None:
            running.process.stdout.close()


def roquet(*arguments: str) -> None:
    """Run a command and show what it prints."""
    click.echo("$ roquet " + shlex.join(arguments))
    done = subprocess.run([sys.executable, "-m", "roquet", *arguments], check=False)  # noqa: S603 - our own program
    if done.returncode:
        raise Failed(f"roquet {arguments[0]} ended with {done.returncode}")
