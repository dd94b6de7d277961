"""Periodic work of the broker: detecting silent clients, saving its tables.

Owns the timers. They run on the event loop, blocking work in a thread. A failed round is logged,
and the next one still runs: a timer that ended silently would go unnoticed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from roquet.broker.components import BrokerComponents
from roquet.broker.service.topic_queue_mapping_clean import (
    CLEAN_INTERVAL_MS,
    TopicQueueMappingCleanService,
)
from roquet.broker.stats.broker_stats import SAMPLE_INTERVAL_MS
from roquet.errors import RoquetError

__all__ = ["PeriodicTasks", "Table", "in_turns", "persist_tables", "schedule_housekeeping"]

log = logging.getLogger(__name__)

SCAN_INTERVAL_MS = 10_000
LOCK_SCAN_INTERVAL_MS = 60_000
DEFERRED_NOTIFY_INTERVAL_MS = 15_000

Round = Callable[[], Awaitable[None] | None]


class Table(Protocol):
    """A table that is kept in a file."""

    def begin_persist(self) -> Callable[[], None] | None:
        """Return a function that writes the current table in any thread; ``None`` if unchanged."""
        ...


class _Periodic(NamedTuple):
    name: str
    interval_ms: int
    round: Round


class PeriodicTasks:
    """Functions that are called at intervals.

    Example:
        >>> async def example() -> int:
        ...     rounds: list[None] = []
        ...     tasks = PeriodicTasks()
        ...     tasks.every(1, "count", lambda: rounds.append(None))
        ...     tasks.start()
        ...     while len(rounds) < 2:
        ...         await asyncio.sleep(0.001)
        ...     await tasks.stop()
        ...     return len(rounds)
        >>> asyncio.run(example()) >= 2
        True
    """

    def __init__(self) -> None:
        self._known: list[_Periodic] = []
        self._running: list[asyncio.Task[None]] = []
        self._is_started = False

    def every(self, interval_ms: int, name: str, round_: Round) -> None:
        """Add a periodic function; its first call is after one interval.

        Args:
            interval_ms: From the end of one round to the start of the next.
            name: Its name in the log.
            round_: Returns at once, or returns an awaitable.
        """
        periodic = _Periodic(name, interval_ms, round_)
        self._known.append(periodic)
        if self._is_started:
            self._run(periodic)

    def start(self) -> None:
        """Start the timers; those added later start at once."""
        self._is_started = True
        for periodic in self._known:
            self._run(periodic)

    async def stop(self) -> None:
        """Stop all timers, even in the middle of a round; safe to call twice."""
        self._is_started = False
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _run(self, periodic: _Periodic) -> None:
        self._running.append(asyncio.get_running_loop().create_task(_repeat(periodic)))


async def _repeat(periodic: _Periodic) -> None:
    while True:
        await asyncio.sleep(periodic.interval_ms / 1000)
        try:
            result = periodic.round()
            if result is not None:
                await result
        except RoquetError as error:
            log.warning("%s: %s", periodic.name, error)
        except Exception:
            log.exception("%s: a round failed", periodic.name)


def in_turns(steps: Callable[[], Iterable[object]]) -> Callable[[], Awaitable[None]]:
    """Wrap a generator as a round that runs in steps, with other work in between."""

    async def do_round() -> None:
        for _ in steps():
            await asyncio.sleep(0)

    return do_round


async def persist_tables(tables: Sequence[Table]) -> list[RoquetError]:
    """Write the tables that changed; if one cannot be written, the others still are.

    Returns:
        The errors of those that could not be written.
    """
    loop = asyncio.get_running_loop()
    failures: list[RoquetError] = []
    for table in tables:
        save = table.begin_persist()
        if save is None:
            continue
        try:
            await loop.run_in_executor(None, save)
        except RoquetError as error:
            log.warning("%s could not be saved: %s", type(table).__name__, error)
            failures.append(error)
    return failures


def schedule_housekeeping(tasks: PeriodicTasks, components: BrokerComponents) -> None:
    """Add the broker's own rounds.

    Administrators' changes are in the files already; these rounds save offsets, and changes that
    came from clients.
    """
    tasks.every(SCAN_INTERVAL_MS, "scan of producers", in_turns(components.producers.scan))
    tasks.every(SCAN_INTERVAL_MS, "scan of consumers", in_turns(components.consumers.scan))
    tasks.every(LOCK_SCAN_INTERVAL_MS, "scan of queue locks", components.locks.scan_expired)
    if not components.config.real_time_notify_consumer_change:
        interval_ms = DEFERRED_NOTIFY_INTERVAL_MS
        tasks.every(interval_ms, "news of consumer groups", components.consumers.notify_deferred)
    hold = components.hold
    tasks.every(hold.sweep_interval_ms, "sweep of held pulls", hold.check_hold_requests)
    tasks.every(SAMPLE_INTERVAL_MS, "sampling of statistics", in_turns(components.stats.sampling))
    if not components.ha.is_slave:  # which copies its master's mappings
        mappings = TopicQueueMappingCleanService(components)
        tasks.every(CLEAN_INTERVAL_MS, "cleaning of mappings", mappings.run_once)

    async def save() -> None:
        await persist_tables(components.tables)

    tasks.every(components.config.flush_consumer_offset_interval_ms, "writing of tables", save)
