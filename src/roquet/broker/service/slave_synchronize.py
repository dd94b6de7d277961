"""Copies of the master's tables on a slave.

Upstream's SlaveSynchronize. Owns when a slave copies topics, groups, request modes, and the offsets
of groups and delay levels from its master, and the order in which they take effect:

.. code-block:: text

    topics, groups, modes ──► when they have come
    offsets ──► kept back until the log here is on disk up to where the master's log
                ended after it had sent them

Invariants:

* An offset never takes effect before the messages that it counts as consumed or delivered are on
  this disk. Otherwise, after the loss of the master, delayed messages would never be delivered,
  and groups would skip messages that get these offsets next. Upstream copies offsets at once.
* Only a table with another version than the copy is applied; a change that was made here, such as
  a group that a heartbeat created, has another version too and is replaced.
* The queues of a topic that the master deleted are deleted here, once no more of its messages can
  come, unless the master's table may have been lost: its counter must have grown since the copy
  before, from the same master. A slave that was promoted may never have had a topic whose messages
  are in its log, and the table here may be that of the former master.
* A master that cannot be reached is logged once, when it fails and when it works again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple

import msgspec

from roquet.broker.components import BrokerComponents
from roquet.broker.service.housekeeping import persist_tables
from roquet.broker.service.master_tables import MasterTables, TopicTables
from roquet.errors import RoquetError
from roquet.model.data_version import DataVersion
from roquet.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)

__all__ = ["SlaveSynchronize"]

log = logging.getLogger(__name__)

SYNC_INTERVAL_MS = 10_000
"""From the end of one round to the start of the next."""

PENDING_INTERVAL_MS = 500
"""How often to check whether the log has reached the offsets that are kept back."""


class _Pending(NamedTuple):
    """Offsets that are kept back.

    Attributes:
        master: From whom they are.
        log_end: Where that master's log ended after it had sent them.
    """

    master: str
    consumer_offsets: ConsumerOffsetSerializeWrapper
    delay_offsets: DelayOffsetSerializeWrapper
    log_end: int


class _Gone(NamedTuple):
    """Topics that the master deleted before its log ended at an offset."""

    topics: list[str]
    log_end: int


class SlaveSynchronize:
    """Keeps the tables of a slave like those of its master.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._master = components.master
        self._tables = MasterTables(components.client)
        self._pending: _Pending | None = None
        self._topics_copied: tuple[str, DataVersion] | None = None
        self._gone: deque[_Gone] = deque()
        self._fault = ""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start copying as soon as the master's address is known."""
        self._master.changed.append(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop copying, even in the middle of a round; safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            self._master.changed.remove(self._wake.set)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        next_round = loop.time()
        while True:
            self._wake.clear()
            if loop.time() >= next_round and self._is_wanted():
                await self.sync_all()
                next_round = loop.time() + SYNC_INTERVAL_MS / 1000
            elif self._pending is not None:
                await self._try_pending()
            wait_s = max(next_round - loop.time(), 0) if self._is_wanted() else None
            if self._pending is not None:
                wait_s = PENDING_INTERVAL_MS / 1000
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
            next_round = min(next_round, loop.time())

    async def _try_pending(self) -> None:
        try:
            await self._apply_pending()
        except (RoquetError, OSError) as error:
            # The disk; the broker fails by itself if it must.
            log.warning("Offsets of the master were not applied: %s", error)
            self._pending = None

    def _is_wanted(self) -> bool:
        address = self._master.address
        return bool(address) and self._master.is_listed and address != self._own_address

    @property
    def _own_address(self) -> str:
        return self._broker.advertised.address

    # ------------------------------------------------------------------------------- a round

    async def sync_all(self) -> None:
        """Copy all tables once; failures are logged."""
        master = self._master.address
        faults: list[str] = []
        for step in (
            self._sync_topics,
            self._sync_groups,
            self._sync_request_modes,
            self._sync_offsets,
        ):
            try:
                await step(master)
            except RoquetError as error:
                faults.append(str(error).replace("\n", "; "))
            except Exception:
                # Whatever it is, the other tables and the next round must follow.
                log.exception("a table of the master %s was not copied", master)
                faults.append("an unexpected error")
        self._report(master, faults)

    def _report(self, master: str, faults: list[str]) -> None:
        fault = f"{master}: {faults[0]}" if faults else ""
        if fault and not self._fault:
            log.warning("Not all tables of the master were copied; retrying. %s", fault)
        elif self._fault and not fault:
            log.info("All tables of the master %s were copied again.", master)
        self._fault = fault

    async def _sync_topics(self, master: str) -> None:
        topics, mappings = self._broker.topics, self._broker.mappings
        found = await self._tables.topics(master, topics.data_version, mappings.data_version)
        if found is None:
            self._topics_copied = master, msgspec.structs.replace(topics.data_version)
            self._drop_queues()
            return
        if found.version != topics.data_version:
            self._adopt_topics(master, found, await self._tables.log_end(master))
        if found.mapping_version != mappings.data_version:
            mappings.adopt(found.mappings, found.mapping_version)
        await persist_tables((topics, mappings, self._broker.offsets))

    def _adopt_topics(self, master: str, found: TopicTables, log_end: int) -> None:
        source, before = self._topics_copied or ("", found.version)
        gone = self._broker.topics.adopt(found.topics, found.version)
        self._topics_copied = master, msgspec.structs.replace(found.version)
        if gone:
            log.info("The master has deleted %d topics: %s", len(gone), ", ".join(gone[:10]))
            is_later = (
                source == master
                and found.version.state_version == before.state_version
                and found.version.counter > before.counter
            )
            if is_later:
                self._gone.append(_Gone(gone, log_end))
            else:
                log.warning("Their queues stay: the master's table of topics may have been lost.")
        self._drop_queues()

    def _drop_queues(self) -> None:
        """Delete the queues of deleted topics, once no more of their messages can come."""
        store, topics = self._broker.store, self._broker.topics
        while self._gone and self._gone[0].log_end <= store.max_physical_offset:
            dropped = [each for each in self._gone.popleft().topics if topics.select(each) is None]
            if dropped:
                # It may have offsets of these topics; this round requests new ones.
                self._pending = None
            for topic in dropped:
                self._broker.offsets.remove_topic(topic)
                self._broker.stats.topic_deleted(topic)
            self._broker.transaction_metrics.forget(dropped)
            store.delete_topics(dropped)

    async def _sync_groups(self, master: str) -> None:
        groups = self._broker.groups
        found = await self._tables.groups(master, groups.data_version)
        if found is not None:
            groups.adopt(found.groups, found.forbidden, found.version)
            await persist_tables((groups,))

    async def _sync_request_modes(self, master: str) -> None:
        found = await self._tables.request_modes(master)
        if found is not None:
            self._broker.request_modes.adopt(found.message_request_mode_map)
            await persist_tables((self._broker.request_modes,))

    # ------------------------------------------------------------------------------- offsets

    async def _sync_offsets(self, master: str) -> None:
        pending = self._pending
        if pending is not None and (
            pending.master != master or await self._tables.log_end(master) < pending.log_end
        ):
            # Another master, or one that lost the end of its log: it will not get there.
            self._pending = None
        if self._pending is None:
            consumer_offsets = await self._tables.consumer_offsets(master)
            delay_offsets = await self._tables.delay_offsets(master)
            # Requested last: everything that these offsets count is before it.
            log_end = await self._tables.log_end(master)
            self._pending = _Pending(master, consumer_offsets, delay_offsets, log_end)
        await self._apply_pending()

    async def _apply_pending(self) -> None:
        pending = self._pending
        store = self._broker.log_store
        if pending is None or store.max_physical_offset < pending.log_end:
            return
        flushed_offset = await asyncio.get_running_loop().run_in_executor(None, store.flush)
        if flushed_offset < pending.log_end or self._pending is not pending:
            return
        self._pending = None
        offsets, delays = self._broker.offsets, self._broker.delay_offsets
        copied = pending.consumer_offsets
        for _ in offsets.adopt_in_steps(copied.offset_table, copied.data_version):
            await asyncio.sleep(0)
        delays.adopt(
            pending.delay_offsets.offset_table,
            pending.delay_offsets.data_version,
            master_offset=pending.log_end,
        )
        await persist_tables((offsets, delays))
