"""Registration with the name servers: when to send what.

The part of upstream's BrokerController around registerBrokerAll. Owns, for each name server, a task
that keeps it informed, and what is known about it: whether it has accepted the broker, and which
topics it knows.

.. code-block:: text

    start ──► register ──► accepted ──► period passed, topics changed, or connection lost ──┐
                  ▲            └────────────────────────────────────────────────────────────┤
                  └── failed: wait 1 s, 2 s, 4 s … up to the period ◄────────────────────────┘

Invariants:

* Name servers do not wait for each other, and the broker waits for none: one that is down or hangs
  costs its own task only.
* A change of the topics is sent at once. Changes that come while a registration is under way are
  sent together by the next one.
* A registration lists all topics, so a name server that was down misses nothing. Only if there are
  very many topics, changed ones are registered singly in between.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.manager.topic_queue_mapping import TopicQueueMappingManager
from roquet.broker.service.advertised_addresses import AdvertisedAddresses
from roquet.broker.service.master_address import MasterAddress
from roquet.broker.service.namesrv_address import NamesrvAddresses
from roquet.broker.service.outer_api import BrokerOuterApi, RegisterResult
from roquet.errors import ProtocolError, RoquetError
from roquet.remoting.client import RemotingClient
from roquet.remoting.connection import Connection
from roquet.remoting.endpoint import LogLimiter
from roquet.runtime.clock import Clock

__all__ = ["NamesrvRegistration"]

log = logging.getLogger(__name__)

PERIOD_MS_MIN = 10_000
PERIOD_MS_MAX = 60_000
RETRY_MS_MIN = 1_000
WAIT_TIMEOUT_MS = 3_000
HEARTBEAT_INTERVAL_MS = 1_000
"""Upstream's ``brokerHeartbeatInterval``."""

UNREGISTER_TIMEOUT_MS = 3_000
SINGLE_TOPICS_FROM = 500
"""With fewer topics, registering all of them takes only a few milliseconds."""

SINGLE_TOPICS_MAX = 50
SINGLE_TOPICS_SHARE = 20
"""With more changes than this, or this share of the topics, all topics are registered."""

_LOG_INTERVAL_MS = 30_000


class _Namesrv:
    """One name server.

    Attributes:
        address: Its address.
        generation: The last topic change that it has been sent.
        told: How many topic changes it has been sent.
        register_at: When to register all topics again, by the loop's clock.
        is_registered: Whether it has accepted the broker, as far as is known.
        is_waited_for: Whether to wait for it: it has not failed or hung.
        failures: Consecutive failed registrations.
        wake: Set to register now.
        ended: Set, and replaced, when a registration has ended in any way.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.generation = -1
        self.told = 0
        self.register_at = 0.0
        self.is_registered = False
        self.is_waited_for = True
        self.failures = 0
        self.wake = asyncio.Event()
        self.ended = asyncio.Event()
        self.connection: Connection | None = None
        self.task: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Stop registering with it, and release all waiters."""
        self.is_registered = self.is_waited_for = False
        self.ended.set()
        if self.task is not None:
            self.task.cancel()


class NamesrvRegistration:
    """Keeps name servers informed about the broker.

    Args:
        config: The broker's settings.
        client: Sends the requests; its owner closes it.
        topics: The topics to register.
        mappings: The queue mappings of static topics.
        advertised: The broker's addresses.
        clock: The time.
        master: Gets the master's addresses, if the broker is a slave.

    Raises:
        ConfigError: The settings for the name servers are missing or invalid.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        client: RemotingClient,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        advertised: AdvertisedAddresses,
        clock: Clock,
        master: MasterAddress | None = None,
    ) -> None:
        self._config = config
        self._client = client
        self._topics = topics
        self._mappings = mappings
        self._api = BrokerOuterApi(
            config, client=client, topics=topics, mappings=mappings, advertised=advertised
        )
        self._master = None if config.is_master else master
        self._addresses = NamesrvAddresses(config, clock=clock)
        self._log_limiter = LogLimiter(clock, interval_ms=_LOG_INTERVAL_MS)
        self._period_ms = min(max(config.register_namesrv_period_ms, PERIOD_MS_MIN), PERIOD_MS_MAX)
        self._generation = 0
        self._namesrvs: dict[str, _Namesrv] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_running = False

    @property
    def addresses(self) -> list[str]:
        """The name servers."""
        return list(self._namesrvs)

    async def start(self) -> None:
        """Start registering; does not wait for any name server."""
        self._is_running = True
        self._topics.changed.append(self._topics_changed)
        self._use(self._addresses.current)
        loop = asyncio.get_running_loop()
        if self._addresses.refresh_interval_ms is not None:
            self._refreshing = loop.create_task(self._refresh())
        if self._config.slave_acting_master:
            self._beating = loop.create_task(self._beat())

    async def stop(self, *, timeout_ms: int = UNREGISTER_TIMEOUT_MS) -> None:
        """Unregister from all name servers; safe to call twice.

        Args:
            timeout_ms: The time limit. A name server that does not respond in time drops the broker
                when the connection closes.
        """
        if not self._is_running:
            return
        self._is_running = False
        self._topics.changed.remove(self._topics_changed)
        namesrvs = list(self._namesrvs.values())
        self._namesrvs.clear()
        for namesrv in namesrvs:
            namesrv.forget()
        await _cancel([self._refreshing, self._beating, *(each.task for each in namesrvs)])
        if not namesrvs:
            return
        leaving = [asyncio.ensure_future(self._unregister(each, timeout_ms)) for each in namesrvs]
        _, late = await asyncio.wait(leaving, timeout=timeout_ms / 1000)
        await _cancel(list(late))

    async def wait_registered(self, *, timeout_ms: int = WAIT_TIMEOUT_MS) -> None:
        """Wait until the name servers know the current topics.

        Those that failed last time are not waited for, and one that caused too long a wait is not
        waited for again before it has responded.
        """
        generation = self._generation
        waiting = {
            each: asyncio.ensure_future(_told(each, generation))
            for each in self._namesrvs.values()
            if each.is_waited_for
        }
        if not waiting:
            return
        try:
            _, late = await asyncio.wait(waiting.values(), timeout=timeout_ms / 1000)
        finally:
            await _cancel(list(waiting.values()))
        for namesrv, task in waiting.items():
            if task in late:
                namesrv.is_waited_for = False

    # ---------------------------------------------------------------- which name servers

    async def _refresh(self) -> None:
        interval_ms = self._addresses.refresh_interval_ms
        assert interval_ms is not None, "only lists that may change are refreshed"
        while True:
            await self._addresses.refresh()
            self._use(self._addresses.current)
            await asyncio.sleep(interval_ms / 1000)

    def _use(self, addresses: list[str]) -> None:
        for address in [known for known in self._namesrvs if known not in addresses]:
            self._namesrvs.pop(address).forget()
            if self._master is not None:
                self._master.forget(address)
        for address in addresses:
            if address not in self._namesrvs:
                namesrv = self._namesrvs[address] = _Namesrv(address)
                namesrv.task = asyncio.get_running_loop().create_task(self._serve(namesrv))

    # ------------------------------------------------------------------ one name server

    def _topics_changed(self) -> None:
        self._generation += 1
        for namesrv in self._namesrvs.values():
            # A failing one is retried on its own schedule, not at every change.
            if namesrv.is_registered:
                namesrv.wake.set()

    async def _serve(self, namesrv: _Namesrv) -> None:
        loop = asyncio.get_running_loop()
        while True:
            namesrv.wake.clear()
            generation = self._generation
            is_registered = await self._attempt(namesrv)
            if is_registered:
                namesrv.generation = generation
                if not namesrv.is_registered:
                    log.info("registered at name server %s", namesrv.address)
            namesrv.is_registered = namesrv.is_waited_for = is_registered
            retry_at = self._retry_at(namesrv)
            ended, namesrv.ended = namesrv.ended, asyncio.Event()
            ended.set()
            if is_registered and generation != self._generation:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(max(retry_at, loop.time())):
                    await namesrv.wake.wait()

    def _retry_at(self, namesrv: _Namesrv) -> float:
        """When to register next: after the period, or while it fails, sooner with a backoff."""
        if namesrv.is_registered:
            namesrv.failures = 0
            return namesrv.register_at
        delay_ms = min(RETRY_MS_MIN << min(namesrv.failures, 16), self._period_ms)
        namesrv.failures += 1
        return asyncio.get_running_loop().time() + delay_ms / 1000

    async def _attempt(self, namesrv: _Namesrv) -> bool:
        try:
            await self._watch(namesrv)
            await self._inform(namesrv)
        except RoquetError as error:
            self._warn(namesrv, str(error).replace("\n", "; "))
            return False
        except Exception:
            # Whatever the error is, the next attempt must follow.
            more = self._log_limiter.allow(namesrv.address)
            if more is not None:
                log.exception("registration at %s failed%s", namesrv.address, more)
            return False
        return True

    async def _inform(self, namesrv: _Namesrv) -> None:
        """Send a name server the changes that it does not know."""
        now = asyncio.get_running_loop().time()
        is_due = not namesrv.is_registered or now >= namesrv.register_at
        position = self._topics.changes.position
        if not is_due and await self._told_singly(namesrv):
            namesrv.told = position
            return
        is_routine = namesrv.is_registered and namesrv.generation == self._generation
        if (
            self._config.force_register
            or not is_routine
            or await self._api.has_other_topics(namesrv.address)
        ):
            await self._take(namesrv, await self._api.register(namesrv.address))
            namesrv.told = position
        namesrv.register_at = now + self._period_ms / 1000

    async def _told_singly(self, namesrv: _Namesrv) -> bool:
        """Register the changed topics one by one, if that is less work."""
        table = self._topics.table
        is_wanted = self._config.single_topic_register or len(table) >= SINGLE_TOPICS_FROM
        names = self._topics.changes.since(namesrv.told)
        if not is_wanted or not self._config.is_master or names is None:
            return False
        if len(names) > max(SINGLE_TOPICS_MAX, len(table) // SINGLE_TOPICS_SHARE):
            return False
        if any(name in self._mappings.table for name in names):
            # Their mappings are only part of full registrations.
            return False
        changed = [table[name] for name in names if name in table]
        try:
            await self._api.register_topics(namesrv.address, changed)
        except ProtocolError:
            # Name servers before 5.0 only support full registrations.
            return False
        return True

    async def _take(self, namesrv: _Namesrv, result: RegisterResult) -> None:
        if self._master is not None:
            self._master.said(
                namesrv.address, result.master_address or "", result.ha_server_address or ""
            )
        try:
            self._topics.stage_order_config(result.ordered)
            await self._topics.committed()
        except RoquetError as error:
            # The broker is registered all the same; the next response brings the list again.
            self._warn(namesrv, f"order configuration not kept: {error.message}")

    async def _watch(self, namesrv: _Namesrv) -> None:
        """Register again as soon as the connection is lost: the name server drops the broker."""
        connection = await self._client.connect(namesrv.address)
        if connection is not namesrv.connection:
            namesrv.connection = connection
            connection.on_close(partial(self._lost, namesrv))

    async def _beat(self) -> None:
        """Send a heartbeat to the name servers every second, so that a failure is noticed soon."""
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_MS / 1000)
            taken_in = [each for each in self._namesrvs.values() if each.is_registered]
            await asyncio.gather(*(self._beat_at(each) for each in taken_in))

    async def _beat_at(self, namesrv: _Namesrv) -> None:
        # Registration detects and logs the failure.
        with suppress(RoquetError):
            await self._api.heartbeat(namesrv.address, timeout_ms=HEARTBEAT_INTERVAL_MS)

    def _lost(self, namesrv: _Namesrv, connection: Connection) -> None:
        if self._is_running and namesrv.connection is connection:
            namesrv.connection = None
            namesrv.is_registered = namesrv.is_waited_for = False
            namesrv.wake.set()

    async def _unregister(self, namesrv: _Namesrv, timeout_ms: int) -> None:
        try:
            await self._api.unregister(namesrv.address, timeout_ms=timeout_ms)
        except RoquetError as error:
            self._warn(namesrv, f"not unregistered: {error.message}")

    def _warn(self, namesrv: _Namesrv, reason: str) -> None:
        more = self._log_limiter.allow(namesrv.address)
        if more is not None:
            log.warning("name server %s: %s%s", namesrv.address, reason, more)


async def _told(namesrv: _Namesrv, generation: int) -> None:
    """Wait until a name server knows a change, or has failed."""
    while namesrv.generation < generation and namesrv.is_waited_for:
        await namesrv.ended.wait()


async def _cancel(tasks: list[asyncio.Task[None] | None]) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
