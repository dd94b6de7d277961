"""A Java slave and a Java master: the requests of one, and what the other returns."""

from __future__ import annotations

from typing import cast

import pytest

from roquet.broker.service.master_tables import MasterTables
from roquet.model.data_version import DataVersion
from roquet.remoting.bodies.broker import HARuntimeInfo
from roquet.remoting.bodies.client import MessageRequestModeSerializeWrapper
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import DelayOffsetSerializeWrapper
from roquet.remoting.client import RemotingClient
from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.headers.base import Header
from tests.golden.wire_frames import GoldenFrame, read_run

MASTER = "127.0.0.2:10911"


def frames(code: RequestCode, *, responses: bool) -> list[GoldenFrame]:
    return [
        each
        for each in read_run("sync")
        if each.request_code == code and each.is_response == responses
    ]


class JavaMaster:
    """Returns what the Java master returned last.

    Attributes:
        asked: The header fields of what was requested, by code.
    """

    def __init__(self) -> None:
        self.asked: dict[int, dict[str, str]] = {}

    async def invoke(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        assert address == MASTER
        assert timeout_ms is not None
        self.asked[code] = create_request(code, header, opaque=1).ext_fields or {}
        return decode_command(frames(RequestCode(code), responses=True)[-1].frame)


@pytest.fixture(name="master")
def _master() -> JavaMaster:
    return JavaMaster()


@pytest.fixture(name="tables")
def _tables(master: JavaMaster) -> MasterTables:
    return MasterTables(cast("RemotingClient", master))


def java_fields(code: RequestCode) -> dict[str, str]:
    found: dict[str, str] = decode_command(frames(code, responses=False)[0].frame).ext_fields or {}
    return found


async def test_topics_and_groups_are_read_as_java_reads_them(
    master: JavaMaster, tables: MasterTables
) -> None:
    topics = await tables.topics(MASTER, DataVersion(), DataVersion())
    assert topics is not None
    assert (topics.topics["Orders"].read_queue_nums, topics.topics["Orders"].order) == (4, True)
    assert await tables.topics(MASTER, topics.version, topics.mapping_version) is None
    groups = await tables.groups(MASTER, DataVersion())
    assert groups is not None
    assert groups.groups["billing"].retry_max_times == 7
    assert groups.forbidden == {"billing": {"Orders": 4}}
    for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
        assert master.asked[code] == java_fields(code)


async def test_offsets_and_modes_are_read(tables: MasterTables) -> None:
    offsets = await tables.consumer_offsets(MASTER)
    assert offsets.offset_table["Orders@billing"] == {1: 2}
    assert offsets.data_version is not None
    assert (await tables.delay_offsets(MASTER)).offset_table == {1: 1}
    modes = await tables.request_modes(MASTER)
    assert modes is not None
    assert modes.message_request_mode_map["Orders"]["billing"].pop_share_queue_nums == 3


async def test_a_master_tells_where_its_log_ends_and_where_it_is(tables: MasterTables) -> None:
    assert await tables.log_end(MASTER) > 0
    info = await tables.ha_info(MASTER)
    assert (info.master_address or "").startswith("127.0.0.2:")
    assert info.master_flush_offset == 0


@pytest.mark.parametrize(
    ("code", "body_type"),
    [
        (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, MessageRequestModeSerializeWrapper),
        (RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetSerializeWrapper),
        (RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo),
    ],
)
def test_bodies_are_written_as_java_writes_them(code: RequestCode, body_type: type) -> None:
    data = frames(code, responses=True)[-1].frame.body
    assert encode_body(decode_body(body_type, data)) == data
