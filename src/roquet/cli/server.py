"""What the commands that run a server share: loop, log, signals and exit codes.

Exit codes, which scripts may rely on:

==== =======================================================================================
code meaning
==== =======================================================================================
0    stopped by a signal, everything is on disk; or nothing was to be started (``-p``, ``-m``)
1    failed, for example because another process uses the store, or stopped without saving a table
2    bad flag or setting, or an address that cannot be listened on
5    data could not be put on disk: nothing was acknowledged after that
129  second SIGHUP: ended at once, the next start recovers the store
130  the same for SIGINT
143  the same for SIGTERM
==== =======================================================================================

SIGHUP means that the terminal is closed, which is a reason to stop, or is sent in the hope of a
reload: without a terminal it is only logged. If it is ignored at startup, as with ``nohup``, it
stays ignored.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from roquet.errors import ConfigError, FlushFailed, RoquetError, StoreLocked
from roquet.runtime.event_loop import loop_factory
from roquet.runtime.files import Files
from roquet.runtime.garbage import settle
from roquet.runtime.held_stores import LOCK_FILE
from roquet.runtime.log import LineFormatter
from roquet.runtime.memory import keep_heap
from roquet.runtime.network import is_loopback
from roquet.runtime.open_files import raise_open_files_limit
from roquet.runtime.process import exit_at_once

__all__ = [
    "StopSignals",
    "config_option",
    "endpoint_options",
    "flush_failed",
    "given",
    "log_level_option",
    "print_properties",
    "refuse_store_in_use",
    "report_settings",
    "run_server",
    "warn_if_exposed",
]

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

LOG_LEVELS = ("debug", "info", "warning", "error")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EXIT_BY_SIGNAL = 128

config_option = click.option(
    "-c",
    "--configFile",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file in Apache RocketMQ's format: key=value, one per line.",
)


def log_level_option(default: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a command the flag ``--log-level``."""
    return click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default=default,
        show_default=True,
        help="The lowest level to log on standard error.",
    )


def endpoint_options(command: Callable[P, T]) -> Callable[P, T]:
    """Give a command the flags ``--host`` and ``--port``."""
    host = click.option(
        "--host",
        metavar="ADDRESS",
        help="Address of this machine to listen on (bindAddress); loopback by default.",
    )
    port = click.option(
        "--port",
        type=click.IntRange(0, 65535),
        help="Port to listen on (listenPort); 0 for any free one.",
    )
    return host(port(command))


def given(**overrides: object) -> dict[str, str]:
    """The values of the given flags, by upstream's keys."""
    return {key: str(value) for key, value in overrides.items() if value is not None}


def print_properties(properties: Mapping[str, str]) -> None:
    """Print settings as upstream does, one per line."""
    for key, text in properties.items():
        click.echo(f"{key}={text}")


def report_settings(warnings: Sequence[ConfigError], without_effect: Sequence[str]) -> None:
    """Log the problems with the settings."""
    for warning in warnings:
        place = f"({warning.detail})" if warning.detail else ""
        log.warning("%s", " ".join(filter(None, [warning.message, place, warning.hint])))
    if without_effect:
        log.info("These settings have no effect here: %s", ", ".join(sorted(without_effect)))


def warn_if_exposed(bind_address: str) -> None:
    """Warn that anyone who can reach a port may use it, unless it is on loopback."""
    if not is_loopback(bind_address):
        log.warning(
            "Listening on %s: anyone who can reach it can read, write and administer; there is "
            "no access control. Keep it behind a firewall, or listen on 127.0.0.1.",
            bind_address,
        )


def refuse_store_in_use(root: Path, files: Files) -> None:
    """Fail early, before any port is opened, if another process has the store.

    Raises:
        StoreLocked: Another process has it.
    """
    lock = root / LOCK_FILE
    holder = files.lock_holder(lock) if files.exists(lock) else None
    if holder is not None:
        raise StoreLocked(
            f"{root} is in use",
            detail=f"process {holder or 'unknown'} holds the lock",
            hint="stop the broker that runs on it, or choose another folder",
        )


def flush_failed(root: str, error: object) -> FlushFailed:
    """The error that ends a server whose data can no longer be written to disk."""
    return FlushFailed(
        "Data could not be put on disk, so the broker stopped.",
        detail=f"{root}: {error}; nothing was acknowledged after that",
        hint="Check the disk and the system log; the next start recovers what is on disk.",
    )


class StopSignals:
    """Handles signals: the first requests a clean shutdown, the second ends the process.

    Args:
        has_terminal: Whether the process runs on a terminal, so that SIGHUP is one of them.
    """

    def __init__(self, *, has_terminal: bool) -> None:
        self._heard = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._hear, number)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
            return
        if has_terminal:
            loop.add_signal_handler(signal.SIGHUP, self._hear, signal.SIGHUP)
        else:
            loop.add_signal_handler(signal.SIGHUP, self._ignore_hang_up)

    def _ignore_hang_up(self) -> None:
        log.warning("SIGHUP is ignored: settings are read only at startup.")

    def _hear(self, number: signal.Signals) -> None:
        if self._heard.is_set():
            exit_at_once(_EXIT_BY_SIGNAL + number)
        self._heard.set()

    async def wait(self, *failures: Awaitable[object]) -> object | None:
        """Wait for the first signal or failure; to be called once the server has started.

        Returns:
            The result of the failure; ``None`` after a signal.
        """
        settle()
        signalled = asyncio.ensure_future(self._heard.wait())
        failed = [asyncio.ensure_future(each) for each in failures]
        try:
            await asyncio.wait([signalled, *failed], return_when=asyncio.FIRST_COMPLETED)
            return next((each.result() for each in failed if each.done()), None)
        finally:
            for each in (signalled, *failed):
                each.cancel()
            await asyncio.gather(signalled, *failed, return_exceptions=True)


def report_fatal_signals() -> None:
    """Let a signal that ends the process at once, such as SIGBUS, leave a traceback of all threads.

    A page of a mapped file that was in memory, was given up and cannot be read again is such a
    case: nothing can report it before it is touched.
    """
    if faulthandler.is_enabled() or sys.stderr is None:
        return
    with suppress(ValueError, OSError):  # standard error has no descriptor
        faulthandler.enable()


def run_server(main: Callable[[StopSignals], Coroutine[None, None, None]], log_level: str) -> None:
    """Run a server until it ends.

    Args:
        main: Starts the server, waits for the signals, and stops it.
        log_level: The log level on standard error.

    Raises:
        RoquetError: It could not start, or failed.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=log_level.upper(), handlers=[handler])
    has_terminal = any(
        stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)
    )
    raise_open_files_limit()
    keep_heap()
    report_fatal_signals()

    async def whole() -> None:
        await main(StopSignals(has_terminal=has_terminal))

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(whole())
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise RoquetError(
            "The server cannot continue.", detail=f"{place}{error.strerror or error}"
        ) from error
