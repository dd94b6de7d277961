"""Pairs of stores that replicate over loopback, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from roquet.ha import follower
from roquet.ha.service import HaService
from roquet.runtime.clock import SystemClock
from roquet.store.config import BrokerRole, MessageStoreConfig, replace
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageResult
from tests.unit.client.client_kit import until
from tests.unit.store.kit import CONFIG, message

QUICK = replace(CONFIG, ha_heartbeat_interval_ms=100, ha_housekeeping_interval_ms=5000)
follower.RECONNECT_PAUSE_S = 0.05


class Replica:
    """One store and its replication.

    Attributes:
        store: The store.
        ha: Its replication.
    """

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        loop = asyncio.get_running_loop()
        clock = SystemClock()

        def post(function: Callable[[], None]) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(function)

        self.root = root
        self.store = DefaultMessageStore(root, replace(config), clock=clock, post=post)
        self.ha = HaService(self.store, clock)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ha.listen_port}"

    @property
    def end(self) -> int:
        return self.store.commit_log.wrote_offset

    def log_bytes(self) -> bytes:
        """The log as it is, up to its end."""
        parts = self.store.bulk_commit_log_data(self.store.min_physical_offset, self.end)
        return b"".join(parts)

    def submit(self, *bodies: bytes, wait: bool = True) -> list[PutMessageResult]:
        """Put messages; their results come when they are known."""
        results: list[PutMessageResult] = []
        for number, body in enumerate(bodies):
            one = message(body, queue_id=number % 2, wait_store_ok=wait, KEYS=f"k{number}")
            self.store.submit(one, results.append)
        self.store.finish_burst()
        return results


@asynccontextmanager
async def replica(
    root: Path, *, master: str = "", port: int = 0, options: Mapping[str, object] | None = None
) -> AsyncIterator[Replica]:
    """A running store; a slave if it has a master."""
    role = {"broker_role": BrokerRole.SLAVE} if master else {}
    made = Replica(root, replace(QUICK, **{**role, "ha_master_address": master, **(options or {})}))
    made.store.load()
    made.store.start()
    await made.ha.start("127.0.0.1", port)
    try:
        yield made
    finally:
        await made.ha.stop()
        await asyncio.to_thread(made.store.shutdown)


async def caught_up(slave: Replica, master: Replica) -> None:
    """Wait until a slave has all of its master's log, and the master knows."""
    await until(lambda: slave.end == master.end)
    await until(lambda: master.end in [each.ack_offset for each in master.ha.status().slaves])


def same_files(left: Path, right: Path, *folders: str) -> None:
    """Compare the files below folders of two stores."""
    for folder in folders:
        for path in sorted(left.joinpath(folder).rglob("*")):
            if path.is_file():
                twin = right / path.relative_to(left)
                assert twin.read_bytes() == path.read_bytes(), path
