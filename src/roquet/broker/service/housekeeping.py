"""What the broker does again and again: looking for silent clients, writing its tables.

Owns the timers. They run on the event loop; what blocks is done in a thread. A round that fails is
logged, and the next one comes all the same: nobody would notice the silence of a timer that ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.manager.rebalance_lock import RebalanceLockManager
from roquet.errors import RoquetError

__all__ = ["PeriodicTasks", "Table", "keep_house", "persist_tables"]

log = logging.getLogger(__name__)

SCAN_INTERVAL_MS = 10_000
LOCK_SCAN_INTERVAL_MS = 60_000
DEFERRED_NOTIFY_INTERVAL_MS = 15_000

Round = Callable[[], Awaitable[None] | None]


class Table(Protocol):
    """What is kept in a file."""

    def begin_persist(self) -> Callable[[], None] | None:
        """What writes the table as it is now, in any thread, or ``None`` if nothing changed."""
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
        """Have something called; the first time when the interval has passed once.

        Args:
            interval_ms: From the end of one round to the start of the next.
            name: What the log calls it.
            round_: Returns at once, or something to wait for.
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
        """End all timers, also in the middle of a round; safe to call twice."""
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


async def persist_tables(tables: Sequence[Table]) -> None:
    """Write the tables that changed; one that cannot be written does not keep others from it."""
    loop = asyncio.get_running_loop()
    for table in tables:
        save = table.begin_persist()
        if save is None:
            continue
        try:
            await loop.run_in_executor(None, save)
        except RoquetError as error:
            log.warning("%s is tried again later: %s", type(table).__name__, error)


def keep_house(
    tasks: PeriodicTasks,
    config: BrokerConfig,
    *,
    producers: ProducerManager,
    consumers: ConsumerManager,
    locks: RebalanceLockManager,
    tables: Sequence[Table],
) -> None:
    """Add the broker's own rounds.

    Args:
        tasks: The timers.
        config: The broker's settings.
        producers: Loses those that are silent.
        consumers: Loses those that are silent.
        locks: Loses those that ran out.
        tables: Offsets, topics and groups. What administrators change is in the files already;
            what is left are offsets, and changes that came from clients.
    """
    tasks.every(SCAN_INTERVAL_MS, "scan of producers", producers.scan_not_active)
    tasks.every(SCAN_INTERVAL_MS, "scan of consumers", consumers.scan_not_active)
    tasks.every(LOCK_SCAN_INTERVAL_MS, "scan of queue locks", locks.scan_expired)
    if not config.real_time_notify_consumer_change:
        interval_ms = DEFERRED_NOTIFY_INTERVAL_MS
        tasks.every(interval_ms, "news of consumer groups", consumers.notify_deferred)
    interval_ms = config.flush_consumer_offset_interval_ms
    tasks.every(interval_ms, "writing of tables", lambda: persist_tables(tables))
