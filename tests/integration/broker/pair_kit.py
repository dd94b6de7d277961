"""A name server, a master and its slave in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig, replace
from roquet.broker.service import master_watch, slave_synchronize
from roquet.ha import follower
from roquet.namesrv.namesrv import Namesrv
from roquet.store.config import BrokerRole
from roquet.store.config import replace as replace_store_settings
from tests.integration.broker.broker_kit import config, store_config
from tests.integration.broker.service.namesrv_kit import address_of, real_namesrv
from tests.interop.process import find_free_port


class Pair:
    """The three; any broker may be stopped and started again on its store and port."""

    def __init__(self, root: Path, namesrv: Namesrv, stack: AsyncExitStack) -> None:
        self.root = root
        self.namesrv = namesrv
        self._stack = stack
        self._ports: dict[int, int] = {}
        self.master: Broker
        self.slave: Broker

    @property
    def namesrv_address(self) -> str:
        return address_of(self.namesrv)

    async def start(self, broker_id: int, role: BrokerRole, *, store: str = "") -> Broker:
        """Start a broker; ``store`` names another's directory."""
        root = self.root / (store or str(broker_id))
        base = config(root, namesrv=self.namesrv_address)
        changes: dict[str, object] = {
            "broker_id": broker_id,
            "slave_read": True,
            "transaction_check_interval_ms": 100,
            "listen_port": self._ports.setdefault(broker_id, find_free_port(-2, 1)),
        }
        settings: BrokerConfig = replace(base, **changes)
        broker = Broker(
            settings,
            replace_store_settings(
                store_config(),
                broker_role=role,
                ha_heartbeat_interval_ms=100,
                ha_housekeeping_interval_ms=20_000,
            ),
        )
        await broker.start()
        self._stack.push_async_callback(broker.stop)
        return broker

    async def start_master(self) -> None:
        self.master = await self.start(0, BrokerRole.SYNC_MASTER)

    async def start_slave(self) -> None:
        self.slave = await self.start(1, BrokerRole.SLAVE)

    def is_caught_up(self) -> bool:
        """Whether the slave has all of the master's log, and the master knows."""
        end = self.master.store.max_physical_offset
        acks = [each.ack_offset for each in self.master.components.ha.status().slaves]
        return self.slave.store.max_physical_offset == end and end in acks

    def is_in_sync(self) -> bool:
        """Whether the master counts the slave, so that sends succeed."""
        return self.master.components.ha.status().in_sync_slaves == 1

    def ids(self) -> list[int]:
        """The registered broker ids."""
        return list(self.namesrv.routes.member_group("DefaultCluster", "broker-a").broker_addrs)


@asynccontextmanager
async def pair(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    """A running pair that reacts at once to what others say."""
    monkeypatch.setattr(master_watch, "POLL_INTERVAL_MS", 20)
    monkeypatch.setattr(slave_synchronize, "SYNC_INTERVAL_MS", 50)
    monkeypatch.setattr(slave_synchronize, "PENDING_INTERVAL_MS", 10)
    monkeypatch.setattr(follower, "RECONNECT_PAUSE_S", 0.02)
    async with real_namesrv(root) as namesrv, AsyncExitStack() as stack:
        made = Pair(root, namesrv, stack)
        await made.start_master()
        await made.start_slave()
        yield made
