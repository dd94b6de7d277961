"""Pulls over real connections: held, woken, and to peers that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from roquet.broker.processor.pull_message import UNWRITTEN_BYTES_MAX
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.remoting.server import RemotingServer
from tests.unit.broker.processor.pull_kit import (
    WAIT,
    PullBroker,
    bodies,
    pull,
    pull_broker,
    tagged,
)
from tests.unit.remoting.net_kit import LOOPBACK, Peer, until
from tests.unit.store import kit


class Serving:
    """A broker that listens."""

    def __init__(self, broker: PullBroker, server: RemotingServer, port: int) -> None:
        self.broker = broker
        self.server = server
        self.port = port

    async def peer(self) -> Peer:
        return await Peer.connect(self)  # type: ignore[arg-type]

    def held_bytes(self) -> int:
        return max(connection.held_bytes for connection in self.server.connections)


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[Serving]:
    store_config = kit.config(
        commit_log_file_bytes=1 << 20, max_message_bytes=1 << 19, consume_queue_file_bytes=20_000
    )
    with pull_broker(root, store_config=store_config, is_on_loop=True) as broker:
        broker.subscribe()
        server = RemotingServer(broker.registry)
        server.add_burst_listener(broker.store.finish_burst)
        port = await server.start(LOOPBACK, 0)
        try:
            yield Serving(broker, server, port)
        finally:
            await server.stop()


def ask(peer: Peer, header: PullMessageRequestHeader) -> None:
    peer.writer.write(peer.frame(RequestCode.PULL_MESSAGE, header))


async def test_a_held_pull_completes_on_its_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        first, second = await served.peer(), await served.peer()
        ask(first, pull(flags=WAIT))
        ask(second, pull(queue_id=1, flags=WAIT))
        await until(lambda: len(served.broker.hold) == 2)
        served.broker.put(tagged("a", b"for the second", queue_id=1))
        assert bodies(await second.answer()) == [b"for the second"]
        served.broker.put(tagged("a", b"for the first"))
        assert bodies(await first.answer()) == [b"for the first"]
        await first.close()
        await second.close()


async def test_a_closed_connection_removes_its_pulls(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        peer = await served.peer()
        for queue_id in range(4):
            ask(peer, pull(queue_id=queue_id, flags=WAIT))
        await until(lambda: len(served.broker.hold) == 4)
        await peer.close()
        await until(lambda: len(served.broker.hold) == 0)
        served.broker.put(tagged("a"))
        assert served.server.statistics.processor_errors == 0


async def test_a_crowd_does_not_starve_others(tmp_path: Path) -> None:
    crowd = 2_000
    async with serving(tmp_path) as served:
        peers = [await served.peer() for _ in range(4)]
        for number in range(crowd):
            ask(peers[number % 4], pull(flags=WAIT))
        await until(lambda: len(served.broker.hold) == crowd)
        loop = asyncio.get_running_loop()
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if len(served.broker.hold):
                loop.call_soon(turn)

        served.broker.put(tagged("a", b"for all"))
        loop.call_soon(turn)
        for number in range(crowd):
            assert bodies(await peers[number % 4].answer()) == [b"for all"]
        assert turns >= 50, "all of them in a few turns of the loop"
        for peer in peers:
            await peer.close()


async def test_a_peer_that_does_not_read_takes_little_memory_and_misses_nothing(
    tmp_path: Path,
) -> None:
    count = 64
    async with serving(tmp_path) as served:
        peer = await served.peer()
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            ask(peer, pull(flags=WAIT))
        await until(lambda: len(served.broker.hold) == count)
        body = b"x" * (250 << 10)
        served.broker.put(tagged("a", body))
        await until(lambda: len(served.broker.hold) == 0)
        # The response that crossed the bound, and all of the last write, which counts whole.
        assert served.held_bytes() < UNWRITTEN_BYTES_MAX + 3 * len(body)
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            assert bodies(await peer.answer()) == [body]
        await peer.close()
