"""The proxy for faults: what each end sees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from roquet.errors import ConfigError
from roquet.runtime.network import reset_on_close
from roquet.testing.fault_proxy import HELD_BYTES_MAX, FaultProxy

HOST = "127.0.0.1"
FOREVER_MS = 3_600_000


class End(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, size_bytes: int) -> bytes:
        return await self.reader.readexactly(size_bytes)

    async def at_end(self) -> bool:
        return await self.reader.read(1) == b""

    async def is_reset(self) -> bool:
        try:
            await self.reader.read(1)
        except ConnectionResetError:
            return True
        return False


class Bench:
    """A server behind a proxy, and all opened ends."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.accepted: asyncio.Queue[End] = asyncio.Queue()
        self.ends: list[End] = []

    async def client(self) -> End:
        end = End(*await asyncio.open_connection(self.proxy.host, self.proxy.port))
        self.ends.append(end)
        return end

    async def pair(self) -> tuple[End, End]:
        """A client, and the end of it at the server."""
        client = await self.client()
        server = await self.accepted.get()
        self.ends.append(server)
        return client, server


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with run_bench() as made:
        yield made


@asynccontextmanager
async def run_bench() -> AsyncIterator[Bench]:
    waiting: asyncio.Queue[End] = asyncio.Queue()
    server = await asyncio.start_server(
        lambda reader, writer: waiting.put_nowait(End(reader, writer)), HOST, 0
    )
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy(f"{HOST}:{port}") as proxy:
        bench = Bench(proxy)
        bench.accepted = waiting
        yield bench
        for end in bench.ends:
            end.writer.transport.abort()
    server.close()


async def test_without_faults_bytes_go_both_ways(bench: Bench, rng: random.Random) -> None:
    client, server = await bench.pair()
    there, back = rng.randbytes(3_000_000), rng.randbytes(2_000_000)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.send(there))
        tasks.create_task(server.send(back))
        arrived = tasks.create_task(server.receive(len(there)))
        returned = tasks.create_task(client.receive(len(back)))
    assert arrived.result() == there
    assert returned.result() == back
    assert bench.proxy.to_server.passed_bytes == len(there)
    assert bench.proxy.to_client.passed_bytes == len(back)


async def test_a_half_close_is_passed_on_as_a_half_close(bench: Bench) -> None:
    client, server = await bench.pair()
    await client.send(b"ask")
    client.writer.write_eof()
    assert await server.reader.read() == b"ask"
    await server.send(b"answer")
    assert await client.receive(6) == b"answer"
    server.writer.close()
    assert await client.at_end()
    await bench.proxy.wait_connections(0)


async def test_a_reset_is_passed_on_as_a_reset(bench: Bench) -> None:
    client, server = await bench.pair()
    reset_on_close(client.writer.get_extra_info("socket"))
    client.writer.transport.abort()
    assert await server.is_reset()
    await bench.proxy.wait_connections(0)


async def test_delayed_bytes_arrive_late_and_in_order(bench: Bench) -> None:
    client, server = await bench.pair()
    loop = asyncio.get_running_loop()
    bench.proxy.to_client.delay(30)
    sent_s = loop.time()
    await server.send(b"a")
    await server.send(b"b")
    assert await client.receive(2) == b"ab"
    assert loop.time() - sent_s >= 0.029  # the clock of a loop may count in milliseconds
    bench.proxy.to_client.delay(0)
    await server.send(b"c")
    assert await client.receive(1) == b"c"


async def test_a_delay_may_be_removed_while_bytes_wait(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_server.delay(FOREVER_MS)
    await client.send(b"late")
    await server.send(b"other way")
    assert await client.receive(9) == b"other way"
    assert bench.proxy.to_server.passed_bytes == 0
    bench.proxy.to_server.delay(0)
    assert await server.receive(4) == b"late"


async def test_bytes_dribble(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_client.dribble(2, every_ms=FOREVER_MS)
    await server.send(b"abcdef")
    assert await client.reader.read(100) == b"ab"
    assert bench.proxy.to_client.passed_bytes == 2
    bench.proxy.to_client.dribble(1, every_ms=0)
    assert await client.receive(4) == b"cdef"


async def test_dribbling_loses_nothing(bench: Bench, rng: random.Random) -> None:
    client, server = await bench.pair()
    bench.proxy.to_server.dribble(777, every_ms=0)
    data = rng.randbytes(100_000)
    await client.send(data)
    assert await server.receive(len(data)) == data


async def test_no_bytes_at_a_time_are_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError):
        bench.proxy.to_server.dribble(0)


async def test_held_bytes_arrive_when_released(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_client.hold()
    await server.send(b"held")
    server.writer.write_eof()
    await client.send(b"there")
    assert await server.receive(5) == b"there"
    assert bench.proxy.to_client.passed_bytes == 0
    bench.proxy.to_client.release()
    assert await client.reader.read() == b"held"


async def test_more_than_the_proxy_holds_waits_at_the_sender(
    bench: Bench, rng: random.Random
) -> None:
    client, server = await bench.pair()
    bench.proxy.to_server.hold()
    data = rng.randbytes(HELD_BYTES_MAX * 16)
    sending = asyncio.create_task(client.send(data))
    await server.send(b"x")
    assert await client.receive(1) == b"x"
    assert not sending.done()
    bench.proxy.to_server.release()
    assert await server.receive(len(data)) == data
    await sending


async def test_a_cut_closes_all_connections_cleanly(bench: Bench) -> None:
    pairs = [await bench.pair() for _ in range(3)]
    await bench.proxy.wait_connections(3)
    bench.proxy.to_server.hold()
    await pairs[0][0].send(b"lost")
    bench.proxy.cut()
    for client, server in pairs:
        assert await client.at_end()
        assert await server.at_end()
        client.writer.close()
        server.writer.close()
    await bench.proxy.wait_connections(0)
    await bench.proxy.heal()
    client, server = await bench.pair()
    await client.send(b"new")
    assert await server.receive(3) == b"new"


async def test_a_reset_is_seen_by_both_ends(bench: Bench) -> None:
    client, server = await bench.pair()
    await bench.proxy.wait_connections(1)
    bench.proxy.reset()
    assert await client.is_reset()
    assert await server.is_reset()
    await bench.proxy.wait_connections(0)


async def test_a_cut_of_one_direction_is_not_seen_by_the_sender(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_client.cut()
    assert await client.at_end()
    await server.send(b"lost")
    await client.send(b"still there")
    assert await server.receive(11) == b"still there"


async def test_a_reset_of_one_direction_is_not_seen_by_the_sender(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_client.reset()
    assert await client.is_reset()
    await server.send(b"swallowed")
    assert bench.proxy.connection_count == 1
    assert not server.reader.at_eof()
    server.writer.close()
    await bench.proxy.wait_connections(0)
    assert bench.proxy.to_client.passed_bytes == 0


async def test_a_connection_ends_in_the_middle_of_a_response(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_client.cut_after(5)
    await server.send(b"abc")
    assert await client.receive(3) == b"abc"
    await server.send(b"defg")
    assert await client.reader.read() == b"de"
    assert await server.at_end()
    client, server = await bench.pair()  # once only
    await server.send(b"abcdefgh")
    assert await client.receive(8) == b"abcdefgh"


async def test_a_reset_may_come_before_the_next_byte(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_server.reset_after(0)
    await client.send(b"abc")
    assert await client.is_reset()
    assert await server.is_reset()
    assert bench.proxy.to_server.passed_bytes == 0


async def test_healing_cancels_pending_faults(bench: Bench) -> None:
    client, server = await bench.pair()
    bench.proxy.to_server.cut_after(1)
    bench.proxy.to_server.hold()
    await client.send(b"abc")
    await bench.proxy.heal()
    assert await server.receive(3) == b"abc"


async def test_new_connections_are_refused_and_old_ones_continue(bench: Bench) -> None:
    client, server = await bench.pair()
    await bench.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await bench.client()
    await client.send(b"abc")
    assert await server.receive(3) == b"abc"
    address = bench.proxy.address
    await bench.proxy.accept()
    await bench.proxy.accept()
    assert bench.proxy.address == address
    client, server = await bench.pair()
    await client.send(b"abc")
    assert await server.receive(3) == b"abc"


async def test_an_unreachable_server_means_a_reset() -> None:
    async with run_bench() as gone:
        target = gone.proxy.address
    async with FaultProxy(target) as proxy:
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        assert await End(reader, writer).is_reset()
        await proxy.wait_connections(0)


async def test_stopping_ends_what_is_open() -> None:
    before = asyncio.all_tasks()
    async with run_bench() as bench:
        client, _ = await bench.pair()
        bench.proxy.to_client.hold()
        await bench.proxy.stop()
        assert await client.at_end()
        assert bench.proxy.connection_count == 0
        with pytest.raises(ConnectionRefusedError):
            await bench.client()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("target", ["", "nowhere", "127.0.0.1:0", "127.0.0.1:x"])
async def test_a_target_must_be_an_address(target: str) -> None:
    with pytest.raises(ConfigError):
        FaultProxy(target)


async def test_a_port_that_is_taken_is_an_error(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="Cannot listen"):
        await FaultProxy(bench.proxy.address, port=bench.proxy.port).start()
