"""Rebalancing: which queues of its topics a push consumer gets, among the members of its group.

Owns :class:`Rebalancer`: the queues, the loop that rebalances them every 20 seconds and when a
broker reports a change of the group, the locks of queues that are consumed in order, and the start
offsets of queues.

Invariants:

* Consumption of a queue starts only with an offset from the offset store, or once the store has
  said that there is none; while the store is unreachable, it does not start.
* A revoked queue is first marked as dropped, then its offset is stored, then another client may
  take it.
* While the members of the group or the queues cannot be queried, the assignment stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from roquet.client.group_share import readable_queues, share_of_queues, start_offset
from roquet.client.instance import ClientInstance
from roquet.client.offset_store import OffsetStore
from roquet.client.process_queue import ProcessQueue
from roquet.client.pull_api import PullApi
from roquet.client.push_options import PushOptions
from roquet.client.state_changes import StateChanges
from roquet.errors import NoRoute, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import is_retry_topic
from roquet.remoting.bodies.client import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.client import (
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)

__all__ = ["QueueUser", "Rebalancer"]

log = logging.getLogger(__name__)

REBALANCE_MS = 20_000
REBALANCE_AGAIN_MS = 1_000
LOCK_FIRST_MS = 1_000
LOCK_MS = 20_000
LOCK_TIMEOUT_MS = 1_000
HANDLER_WAIT_MS = 500
HALF_HOUR_MS = 30 * 60_000


class QueueUser(Protocol):
    """Uses the assigned queues."""

    def queue_added(
        self, queue: MessageQueue, process_queue: ProcessQueue, queue_offset: int
    ) -> None:
        """Handle a new queue, which is pulled from this offset on."""
        ...

    async def wait_idle(self, queue: MessageQueue, *, timeout_ms: int) -> bool:
        """Wait until no handler has a message of a queue; returns False on timeout."""
        ...

    def queues_changed(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """Handle a change of the consumer's queues of a topic."""
        ...


class Rebalancer:
    """Assigns queues to a push consumer.

    Args:
        client: The connections and routes.
        group: The consumer's group on the wire.
        options: The consumer's settings.
        subscriptions: The subscriptions by topic on the wire; they may change.
        offsets: The consumer's offsets.
        api: Queries offsets.
        user: Uses the queues.

    Attributes:
        queues: The consumer's queues, including those that are being revoked.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        options: PushOptions,
        *,
        subscriptions: Mapping[str, SubscriptionData],
        offsets: OffsetStore,
        api: PullApi,
        user: QueueUser,
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._api = api
        self._user = user
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self._beginning: set[MessageQueue] = set()
        self._news = StateChanges()
        self._wanted = asyncio.Event()
        self._busy = asyncio.Lock()
        from_ms = options.consume_from_timestamp_ms
        self._from_timestamp_ms = (
            client.clock.now_ms() - HALF_HOUR_MS if from_ms is None else from_ms
        )

    # ----------------------------------------------------------------------- periodic tasks

    def rebalance_soon(self) -> None:
        """Rebalance soon, or at once if the last time was long enough ago."""
        self._wanted.set()

    async def run(self) -> None:
        """Rebalance periodically, until cancelled."""
        while True:
            # Requests from now on start another round.
            self._wanted.clear()
            try:
                is_balanced = await self.rebalance()
            except Exception:
                log.exception("%s: rebalancing failed", self._group)
                is_balanced = False
            await asyncio.sleep(REBALANCE_AGAIN_MS / 1000)
            if is_balanced:
                try:
                    async with asyncio.timeout((REBALANCE_MS - REBALANCE_AGAIN_MS) / 1000):
                        await self._wanted.wait()
                except TimeoutError:
                    pass

    async def run_locks(self) -> None:
        """Renew the locks of all queues periodically, until cancelled."""
        await asyncio.sleep(LOCK_FIRST_MS / 1000)
        while True:
            try:
                await self.lock_all()
            except Exception:
                log.exception("%s: the locks were not renewed", self._group)
            await asyncio.sleep(LOCK_MS / 1000)

    async def rebalance(self) -> bool:
        """Rebalance all topics; returns whether the consumer has all its assigned queues."""
        async with self._busy:
            is_balanced = True
            for topic in list(self._subscriptions):
                try:
                    is_balanced &= await self._rebalance_topic(topic)
                except RoquetError as error:
                    is_balanced = False
                    self._warn(topic, error)
                else:
                    self._news.forget(topic)
            for queue in [each for each in self.queues if each.topic not in self._subscriptions]:
                self.queues[queue].is_dropped = True
                await self._take_away(queue)
            return is_balanced

    def _warn(self, topic: str, error: RoquetError) -> None:
        """Log a failed rebalance only once: a topic may be missing for days."""
        if isinstance(error, NoRoute) and is_retry_topic(topic):
            return  # brokers create it with the first heartbeat, and register it later
        if self._news.is_new(topic, error.message):
            log.warning(
                "%s: rebalancing of %s failed: %s (%s)",
                self._group,
                topic,
                error.message,
                error.detail,
            )

    # --------------------------------------------------------------------------- assignment

    async def _rebalance_topic(self, topic: str) -> bool:
        mine: list[MessageQueue] | None
        if self._options.is_broadcasting:
            mine = await readable_queues(self._client, topic)
        else:
            mine = await share_of_queues(self._client, self._group, topic, self._options.allocate)
        if mine is None:
            return False
        is_changed, is_balanced = await self._update(topic, list(dict.fromkeys(mine)))
        if is_changed:
            log.info("%s: queues of %s are now %s", self._group, topic, mine)
            self._user.queues_changed(topic, self._working(topic))
        return is_balanced

    async def _update(self, topic: str, mine: list[MessageQueue]) -> tuple[bool, bool]:
        """Drop and start queues; returns whether something changed, and whether all succeeded."""
        is_changed = False
        for queue, process_queue in list(self.queues.items()):
            if queue.topic != topic:
                continue
            if queue not in mine:
                process_queue.is_dropped = True
            elif process_queue.is_pull_overdue:
                log.error("%s: %s is no longer pulled; restarting it", self._group, queue)
                process_queue.is_dropped = True
            if process_queue.is_dropped and await self._take_away(queue):
                is_changed = True
        for queue in mine:
            if queue not in self.queues and await self._begin(queue):
                is_changed = True
        return is_changed, set(mine) == set(self._working(topic))

    def _working(self, topic: str) -> list[MessageQueue]:
        return [
            queue
            for queue, process_queue in self.queues.items()
            if queue.topic == topic and not process_queue.is_dropped
        ]

    async def _begin(self, queue: MessageQueue) -> bool:
        if not self._options.is_locking:
            return await self._begin_at_offset(queue)
        # A consumer that is closed in between releases the lock anyway.
        self._beginning.add(queue)
        is_begun = False
        if queue not in await self._lock([queue]):
            log.warning("%s: %s is locked by another client", self._group, queue)
        else:
            is_begun = await self._begin_at_offset(queue)
            if not is_begun:
                await self._unlock([queue])
        self._beginning.discard(queue)
        return is_begun

    async def _begin_at_offset(self, queue: MessageQueue) -> bool:
        process_queue = ProcessQueue(self._client.clock)
        if self._options.is_locking:
            process_queue.note_lock()
        self._offsets.remove(queue)
        self._api.forget(queue)
        try:
            queue_offset = await start_offset(
                queue,
                self._offsets,
                self._api,
                where=self._options.consume_from,
                timestamp_ms=self._from_timestamp_ms,
            )
        except RoquetError as error:
            log.warning(
                "%s: the start offset of %s is unknown: %s", self._group, queue, error.message
            )
            return False
        if queue.topic not in self._subscriptions:
            return False
        self.queues[queue] = process_queue
        self._user.queue_added(queue, process_queue, queue_offset)
        return True

    async def _take_away(self, queue: MessageQueue) -> bool:
        """Release a queue that is marked as dropped; returns whether it is gone."""
        process_queue = self.queues[queue]
        await self._persist(queue)
        if self._options.is_locking:
            if not await self._user.wait_idle(queue, timeout_ms=HANDLER_WAIT_MS) and (
                process_queue.is_locked
            ):
                # Another client that got the queue now could consume before this handler is done.
                process_queue.unlock_attempts += 1
                return False
            await self._persist(queue)
            process_queue.lose_lock()
            await self._unlock([queue])
        self._offsets.remove(queue)
        if self.queues.get(queue) is process_queue:
            del self.queues[queue]
        return True

    async def _persist(self, queue: MessageQueue) -> None:
        try:
            await self._offsets.persist([queue])
        except RoquetError as error:
            log.warning("%s: the offset of %s was not stored: %s", self._group, queue, error)

    async def drop(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """Drop a queue that cannot continue; it is started again soon."""
        async with self._busy:
            process_queue.is_dropped = True
            if self.queues.get(queue) is process_queue:
                await self._take_away(queue)
        self.rebalance_soon()

    # -------------------------------------------------------------------------------- locks

    async def lock(self, queue: MessageQueue) -> bool:
        """Lock a queue at its broker for this client; returns whether that worked."""
        locked = queue in await self._lock([queue])
        process_queue = self.queues.get(queue)
        if locked and process_queue is not None:
            process_queue.note_lock()
        return locked

    async def lock_all(self) -> None:
        """Lock all queues at their brokers again."""
        held = [queue for queue, each in self.queues.items() if not each.is_dropped]
        await asyncio.gather(*(self._renew(queues) for queues in self._by_broker(held).values()))

    async def unlock_all(self) -> None:
        """Unlock all queues, including those that are just being started or revoked."""
        by_broker = self._by_broker([*self.queues, *(self._beginning - self.queues.keys())])
        await asyncio.gather(*(self._unlock(queues) for queues in by_broker.values()))
        for process_queue in self.queues.values():
            process_queue.lose_lock()

    async def _renew(self, queues: list[MessageQueue]) -> None:
        found = {queue: self.queues[queue] for queue in queues}
        try:
            locked = await self._ask_lock(queues)
        except RoquetError as error:
            # The lock stays valid for a while; a restarting broker is asked again before it
            # expires.
            log.warning("%s: locks were not renewed: %s", self._group, error.message)
            return
        for queue, process_queue in found.items():
            if queue in locked:
                process_queue.note_lock()
            else:
                log.warning("%s: %s is locked by another client", self._group, queue)
                process_queue.lose_lock()

    async def _lock(self, queues: list[MessageQueue]) -> set[MessageQueue]:
        try:
            return await self._ask_lock(queues)
        except RoquetError as error:
            log.warning("%s: %s were not locked: %s", self._group, queues, error.message)
            return set()

    async def _ask_lock(self, queues: list[MessageQueue]) -> set[MessageQueue]:
        body = LockBatchRequestBody(
            client_id=self._client.client_id, consumer_group=self._group, queues=queues
        )
        answer = await self._client.ask(
            self._master_of(queues[0]),
            RequestCode.LOCK_BATCH_MQ,
            LockBatchMqRequestHeader(),
            body=encode_body(body),
            timeout_ms=LOCK_TIMEOUT_MS,
        )
        return set(decode_body(LockBatchResponseBody, answer.body).locked_queues)

    async def _unlock(self, queues: list[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(
            client_id=self._client.client_id, consumer_group=self._group, queues=queues
        )
        try:
            await self._client.ask(
                self._master_of(queues[0]),
                RequestCode.UNLOCK_BATCH_MQ,
                UnlockBatchMqRequestHeader(),
                body=encode_body(body),
                timeout_ms=LOCK_TIMEOUT_MS,
            )
        except RoquetError as error:
            log.warning("%s: %s were not unlocked: %s", self._group, queues, error.message)

    def _master_of(self, queue: MessageQueue) -> str:
        name = self._client.routes.broker_name_of(queue)
        address = self._client.routes.broker_address(name, master_only=True)
        if address is None:
            raise NoRoute(f"No master of the broker {name} is known")
        return address

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            name = self._client.routes.broker_name_of(queue)
            found.setdefault(name, []).append(queue)
        return found
