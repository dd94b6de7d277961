"""A client whose broker, or an impostor, sends anything at all."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest

from roquet.client import ClientInstance, ClientOptions, Compression, ReceivedMessage
from roquet.client.compression import BODY_BYTES_MAX
from roquet.errors import BadBody, RoquetError
from roquet.model.message import BrokerMessage
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import create_request
from roquet.remoting.headers.base import header_fields
from roquet.remoting.headers.table import REQUEST_HEADERS
from tests.unit.client.client_kit import (
    Consumer,
    FakeServer,
    Producer,
    fake_server,
    record_of,
    route_of,
    until,
)

PATIENCE_MS = 30_000
ASKED = (39, 40, 220, 221, 307, 309, 326)
NOT_ANSWERED = {39, 40, 220}
ABSURD = ("", "-1", "9223372036854775808", "null", "../../evil", "\x00\x01\x02", "x" * 3_000)
RECORD = record_of(BrokerMessage("T", 0, b"x" * 40))
BODIES = (
    b"",
    b"null",
    b"[]",
    b'{"offsetTable":7}',
    b'{"offsetTable":{{"a":{}}:1}}',
    b"[" * 5_000,
    RECORD[:-1],
    RECORD[:90],
    struct.pack(">i", 2**31 - 1) + RECORD[4:],
    struct.pack(">i", -1) + RECORD[4:],
    b"\xff" * 200,
)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with fake_server() as running:
        running.routes["T"] = route_of(("a", {0: running.address}))
        yield running


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[ClientInstance]:
    options = ClientOptions(namesrv=server.address)
    async with await ClientInstance.open(options) as running:
        running.register_producer("any", Producer("T"))
        running.register_consumer("any", Consumer("any", "T"))
        await running.routes.route("T")
        yield running


def absurd_requests(code: int) -> Iterator[tuple[dict[str, str], bytes]]:
    fields = [each.wire_name for each in header_fields(REQUEST_HEADERS[RequestCode(code)])]
    yield {}, b""
    for value in ABSURD:
        yield dict.fromkeys(fields, value), b""
    for body in BODIES:
        numbers = dict.fromkeys(fields, "1") | {"consumerGroup": "any", "group": "any"}
        yield numbers | {"bornHost": "x", "storeHost": "/:"}, body


@pytest.mark.parametrize("code", ASKED)
async def test_absurd_requests_get_responses_and_leave_nothing(
    server: FakeServer, client: ClientInstance, code: int
) -> None:
    await until(lambda: bool(server.connections))
    connection = server.connections[0]
    for fields, body in absurd_requests(code):
        request = create_request(code, opaque=0, body=body, oneway=code in NOT_ANSWERED)
        request.ext_fields = dict(fields)
        if code in NOT_ANSWERED:
            connection.sender.invoke_oneway(request)
        else:
            await connection.sender.invoke(request, timeout_ms=PATIENCE_MS)
    probe = create_request(307, opaque=0)
    probe.ext_fields = {"consumerGroup": "any", "clientId": "c"}
    assert (await connection.sender.invoke(probe, timeout_ms=PATIENCE_MS)).code == 0
    assert client.remoting.statistics.processor_errors == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'{"brokerDatas":7}',
        b'{"brokerDatas":[null]}',
        b'{"queueDatas":[{"brokerName":"a","perm":6,"writeQueueNums":"x"}]}',
        b'{"brokerDatas":[{"brokerAddrs":{"a":"b"}}]}',
        b"{" * 10_000,
    ],
)
async def test_absurd_routes_change_nothing(
    server: FakeServer, client: ClientInstance, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await client.routes.route("T")
    monkeypatch.setattr("tests.unit.client.client_kit.encode_body", lambda *_, **__: body)
    server.routes["U"] = server.routes["T"]
    with pytest.raises(RoquetError):
        await client.routes.route("U")
    assert await client.routes.route("T", refresh=True) is known


async def test_a_route_without_end_is_refused(server: FakeServer, client: ClientInstance) -> None:
    server.routes["U"] = route_of(("a", {0: server.address}), queues=2**31 - 1)
    with pytest.raises(RoquetError, match="queues"):
        await client.routes.route("U")


def test_a_body_that_swells_without_end_is_refused() -> None:
    squeezed = zlib.compressobj(9)
    bomb = b"".join(squeezed.compress(bytes(1 << 20)) for _ in range(300)) + squeezed.flush()
    message = ReceivedMessage(topic="T", raw_body=bomb, sys_flag=Compression.ZLIB.sys_flag)
    assert len(bomb) < 1 << 20 < BODY_BYTES_MAX
    for _ in range(2):
        with pytest.raises(BadBody, match="cannot be decompressed"):
            _ = message.body
