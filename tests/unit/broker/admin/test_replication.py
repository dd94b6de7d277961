"""What brokers of one name tell administrators and each other about replication."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.broker.admin.replication import runtime_info
from roquet.ha.service import HaStatus, SlaveStatus
from roquet.remoting.bodies.broker import HARuntimeInfo
from roquet.remoting.bodies.client import MessageRequestModeSerializeWrapper
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.ha import ExchangeHAInfoHeader, ResetMasterFlushOffsetRequestHeader
from roquet.store.config import BrokerRole
from tests.unit.broker.admin.kit import Desk, desk, json_body
from tests.unit.store import kit


@pytest.fixture(name="slave")
def _slave(tmp_path: Path) -> Iterator[Desk]:
    store_config = kit.config(broker_role=BrokerRole.SLAVE)
    with desk(tmp_path / "slave", store_config=store_config, broker_id=1) as made:
        yield made


async def test_no_slave_follows(at: Desk) -> None:
    at.put("T", 0, 2)
    status = await at.body_of(RequestCode.GET_BROKER_HA_STATUS, None, HARuntimeInfo)
    assert status == HARuntimeInfo(
        master=True, master_commit_log_max_offset=at.store.max_physical_offset
    )


def test_the_status_of_a_master_is_written_as_upstream_writes_it() -> None:
    slave = SlaveStatus(
        address="127.0.0.1:5",
        ack_offset=90,
        behind_bytes=10,
        bytes_per_second=7,
        transfer_from_offset=100,
        is_in_sync=True,
    )
    status = HaStatus(is_master=True, max_offset=100, in_sync_slaves=1, slaves=[slave])
    assert encode_body(runtime_info(status)) == (
        b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,'
        b'"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},'
        b'"haConnectionInfo":[{"addr":"127.0.0.1:5","diff":10,"inSync":true,"slaveAckOffset":90,'
        b'"transferFromWhere":100,"transferredByteInSecond":7}],'
        b'"inSyncSlaveNums":1,"master":true,"masterCommitLogMaxOffset":100}'
    )


def test_the_status_of_a_slave_has_no_connections() -> None:
    status = HaStatus(
        is_master=False,
        max_offset=5,
        master_address="h:2",
        last_read_ms=3,
        last_write_ms=4,
        master_flush_offset=6,
    )
    info = runtime_info(status)
    assert not info.master
    assert info.ha_client_runtime_info.max_physical_offset == 5
    assert info.ha_client_runtime_info.master_address == "h:2"
    assert (info.ha_connection_info, info.master_commit_log_max_offset) == ([], 0)


async def test_a_master_keeps_no_offset_of_a_master(at: Desk) -> None:
    at.put("T", 0, 2)
    end = at.store.max_physical_offset
    answer = await at.ask_ok(RequestCode.RESET_MASTER_FLUSH_OFFSET)
    assert answer.body == b""
    assert at.store.max_physical_offset == end


async def test_a_slave_keeps_queues_whose_topics_were_not_copied_yet(at: Desk, slave: Desk) -> None:
    at.put("New", 0, 1)
    assert slave.store.append_to_commit_log(0, at.store.commit_log_data(0) or b"")
    await slave.ask_ok(RequestCode.CLEAN_UNUSED_TOPIC)
    assert slave.store.max_offset_in_queue("New", 0) == 1


async def test_a_slave_s_note_of_its_master_can_be_changed(slave: Desk) -> None:
    header = ResetMasterFlushOffsetRequestHeader(master_flush_offset=77)
    await slave.ask_ok(RequestCode.RESET_MASTER_FLUSH_OFFSET, header)
    assert slave.parts.ha.status().master_flush_offset == 77
    assert (await slave.ask(RequestCode.RESET_MASTER_FLUSH_OFFSET)).code != ResponseCode.SUCCESS


async def test_a_master_tells_where_it_is_and_a_slave_does_not(at: Desk, slave: Desk) -> None:
    code = RequestCode.EXCHANGE_BROKER_HA_INFO
    answer = await at.ask_ok(code)
    info = decode_header(ExchangeHAInfoHeader, answer.ext_fields)
    advertised = at.parts.advertised
    assert (info.master_address, info.master_ha_address, info.master_flush_offset) == (
        advertised.address,
        advertised.ha_address,
        0,
    )
    assert not (await slave.ask_ok(code)).ext_fields


async def test_a_slave_believes_no_peer_but_looks_for_its_master(slave: Desk) -> None:
    looks: list[None] = []
    slave.parts.master.look = lambda: looks.append(None)
    header = ExchangeHAInfoHeader(master_ha_address="evil:1", master_address="evil:2")
    await slave.ask_ok(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
    await slave.ask_ok(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
    assert len(looks) == 2
    assert (slave.parts.master.address, slave.parts.ha.ha_master_address) == ("", "")


async def test_no_epochs_without_a_controller(at: Desk) -> None:
    answer = await at.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
    expected = (ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
    assert (answer.code, answer.remark) == expected


async def test_a_slave_that_copies_the_timer_is_told_that_there_is_none(at: Desk) -> None:
    remarks = [
        (await at.ask(code)).remark
        for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS)
    ]
    assert remarks == ["The checkpoint is null", "The timer message store is null"]


async def test_without_request_modes_the_table_is_empty(at: Desk) -> None:
    answer = await at.ask_ok(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    assert answer.body == b'{"messageRequestModeMap":{}}'
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    body = await at.body_of(code, None, MessageRequestModeSerializeWrapper)
    assert body == MessageRequestModeSerializeWrapper()


async def test_a_slave_refuses_changes_of_topics_and_groups(slave: Desk) -> None:
    topic = headers.CreateTopicRequestHeader(
        topic="T",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    answers = [
        await slave.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic),
        await slave.ask(
            RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicRequestHeader(topic="T")
        ),
        await slave.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json_body(groupName="G")
        ),
        await slave.ask(
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            headers.DeleteSubscriptionGroupRequestHeader(group_name="G"),
        ),
        await slave.ask(
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            headers.UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=False),
        ),
    ]
    remark = (
        "Can't modify topic or subscription group from slave broker, "
        "please execute it from master broker."
    )
    assert [(each.code, each.remark) for each in answers] == [
        (ResponseCode.SYSTEM_ERROR, remark)
    ] * len(answers)
    assert "T" not in slave.topics.table
