"""Every request code at a whole broker and a whole name server: served, or refused by name.

Each code of the table, and some unknown numbers, is sent to both ports of a broker and to a name
server: without fields, with absurd fields, with garbage bodies. Every request gets a response,
nothing fails unexpectedly, and both serve afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import Handler, RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.endpoint import RemotingStatistics
from roquet.remoting.headers.base import header_fields
from roquet.remoting.headers.table import REQUEST_HEADERS
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.store.config import MessageStoreConfig
from roquet.testing.hooked_files import QuickFiles
from tests.patience import NEVER_MS, PATIENCE_S, PATIENT

LOOPBACK = "127.0.0.1"
SILENCE_S = 0.1

UNNAMED = (0, 1, 16, 50, 54, 999, 5002, 9999, 200070, 32_767, 2**31 - 1, -1)
"""Numbers without a name, some of them from older and later releases."""

NOT_ANSWERED = {RequestCode.END_TRANSACTION}
"""A producer that does not know how its transaction ends is not answered, as upstream."""

ABSURD = ("", "-1", "9223372036854775808", "null", "../../evil", "\x00\x01\x02", "x" * 3_000)
BODIES = (b"", b"\x00\xff" * 9, b"null", b"[]", b'{"a":', b"[" * 3_000, b'{"table":[{},null,7]}')

STORE = MessageStoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    index_slots=100,
    index_entries=400,
    os_page_cache_busy_timeout_ms=NEVER_MS,
)


class Target(NamedTuple):
    """The server to query."""

    address: str
    role: Handler
    codes: frozenset[int]
    statistics: RemotingStatistics


@pytest.fixture
async def targets(tmp_path: Path) -> AsyncIterator[list[Target]]:
    names = NamesrvConfig(
        bind_address=LOOPBACK,
        listen_port=0,
        kv_config_path=str(tmp_path / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    settings = BrokerConfig(
        bind_address=LOOPBACK,
        listen_port=0,
        store_root=str(tmp_path / "store"),
        fast_failure=False,
    )
    async with Namesrv(names) as namesrv, Broker(settings, STORE, files=QuickFiles()) as broker:
        registry = broker._registry
        yield [
            target(broker.port, Handler.BROKER, registry, Port.MAIN, broker.statistics),
            target(broker.fast_port, Handler.BROKER, registry, Port.FAST, broker.statistics),
            target(
                namesrv.port,
                Handler.NAMESRV,
                namesrv._server._endpoint.registry,
                Port.MAIN,
                namesrv._server.statistics,
            ),
        ]


def target(
    port: int,
    role: Handler,
    registry: ProcessorRegistry,
    kind: Port,
    statistics: RemotingStatistics,
) -> Target:
    return Target(f"{LOOPBACK}:{port}", role, frozenset(registry.table(kind)), statistics)


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    async with RemotingClient(config=PATIENT) as made:
        yield made


async def ask(
    client: RemotingClient, at: Target, code: int, fields: Mapping[str, str], body: bytes = b""
) -> RemotingCommand | None:
    """The response; ``None`` for a code that may have none."""
    request = create_request(code, opaque=0, body=body)
    request.ext_fields = dict(fields) or None
    connection = await client.connect(at.address)
    try:
        async with asyncio.timeout(SILENCE_S if code in NOT_ANSWERED else PATIENCE_S):
            return await connection.sender.invoke(request)
    except TimeoutError:
        assert code in NOT_ANSWERED, f"{code} {fields} gets no response"
        return None


def absurd_fields(code: RequestCode) -> Iterator[dict[str, str]]:
    """All fields of a header with the same absurd value; then each alone absurd, or missing."""
    header = REQUEST_HEADERS.get(code)
    names = [] if header is None else [field.wire_name for field in header_fields(header)]
    for value in ABSURD:
        yield dict.fromkeys([*names, "unknown"], value)
    for name in names:
        yield dict.fromkeys(names, "1") | {name: "x"}
        yield {other: "1" for other in names if other != name}


async def at_all(targets: list[Target], walk: Callable[[Target], Awaitable[None]]) -> None:
    await asyncio.gather(*(walk(at) for at in targets))


async def test_every_code_is_served_or_refused_by_name(
    targets: list[Target], client: RemotingClient
) -> None:
    async def walk(at: Target) -> None:
        for code in RequestCode:
            answer = await ask(client, at, code, {})
            if answer is None:
                continue
            is_refused = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert is_refused == (code not in at.codes), code.name
            if is_refused:
                assert answer.remark == f" request type {int(code)} not supported: {code.name}"
                assert (answer.body, answer.ext_fields) == (b"", None)
            else:
                assert at.role in code.handlers, f"{code.name} is none of its codes"

    await at_all(targets, walk)


async def test_unknown_codes_are_refused_in_upstreams_words(
    targets: list[Target], client: RemotingClient
) -> None:
    async def walk(at: Target) -> None:
        for code in UNNAMED:
            answer = await ask(client, at, code, {"a": "b"}, b"body")
            assert answer is not None
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert answer.remark == f" request type {code} not supported"

    await at_all(targets, walk)


def test_the_fast_port_serves_everything_but_pulls(targets: list[Target]) -> None:
    main, fast, _ = targets
    assert main.codes - fast.codes == {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}
    assert fast.codes < main.codes


async def test_absurd_requests_get_responses(
    targets: list[Target], client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def walk(at: Target) -> None:
        for code in RequestCode:
            requests = [(fields, b"") for fields in absurd_fields(code)]
            requests += [({}, body) for body in BODIES]
            requests += [(requests[0][0], body) for body in BODIES]
            for fields, body in requests if code in at.codes else requests[:3]:
                answer = await ask(client, at, code, fields, body)
                if answer is None:
                    continue
                remark = answer.remark or ""
                assert "Error while handling" not in remark, (code.name, fields, body)
                assert "Traceback" not in remark
        # It serves as before.
        answer = await ask(client, at, UNNAMED[-1], {})
        assert answer is not None
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    with caplog.at_level(logging.ERROR):
        await at_all(targets, walk)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    for at in targets:
        assert at.statistics.processor_errors == 0
        assert at.statistics.bad_frames == 0
