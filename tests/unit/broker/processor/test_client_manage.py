"""Clients that register, stay and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from roquet.broker.manager import consumer as consumer_module
from roquet.broker.processor import client_manage
from roquet.broker.processor.client_manage import ClientManageProcessor
from roquet.model.subscription import SubscriptionData, SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
)
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import client as headers
from tests.table_changes import put_groups, put_topics
from tests.unit.broker.admin.kit import Desk, FakeConnection, desk

HEARTBEAT = headers.HeartbeatRequestHeader()


@pytest.fixture(name="at")
def _at(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made:
        yield made


def consumer(
    group: str | None = "G",
    *topics: str,
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    unit_mode: bool = False,
) -> ConsumerData:
    return ConsumerData(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_type=consume_type,
        group_name=group,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics
        ],
        unit_mode=unit_mode,
    )


async def beat(
    at: Desk,
    *consumers: ConsumerData,
    producers: tuple[str, ...] = (),
    client_id: str | None = "c1",
    fingerprint: int = 0,
    without_sub: bool = False,
    connection: object = None,
) -> bool:
    """Send a heartbeat; return whether the broker wants subscriptions in full."""
    data = HeartbeatData(
        client_id=client_id,
        consumer_data_set=list(consumers),
        producer_data_set=[ProducerData(group_name=name) for name in producers],
        heartbeat_fingerprint=fingerprint,
        without_sub=without_sub,
    )
    answer = await at.ask(
        RequestCode.HEART_BEAT, HEARTBEAT, body=encode_body(data), connection=connection
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert answer.ext_fields is not None
    assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    return answer.ext_fields["IS_SUB_CHANGE"] == "true"


def subscriptions(at: Desk, group: str = "G") -> set[str]:
    info = at.consumers.find(group)
    assert info is not None
    return set(info.subscriptions)


# -- heartbeats ---------------------------------------------------------------------------------


async def test_producers_and_consumers_are_registered(at: Desk) -> None:
    assert await beat(at, consumer("G", "T"), producers=("P", "Q"))
    assert set(at.producers.groups) == {"P", "Q"}
    info = at.consumers.find("G")
    assert info is not None
    assert info.client_ids() == ["c1"]
    assert info.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert info.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert info.message_model is MessageModel.CLUSTERING
    assert subscriptions(at) == {"T"}


async def test_others_of_the_group_are_notified(at: Desk) -> None:
    await beat(at, consumer("G", "T"))
    await beat(at, consumer("G", "T"), client_id="c2", connection=FakeConnection())
    assert at.notified[-1] == ("G", ["c1", "c2"])


async def test_a_group_may_turn_notifications_off(at: Desk) -> None:
    put_groups(
        at.groups, SubscriptionGroupConfig(group_name="G", notify_consumer_ids_changed_enable=False)
    )
    await beat(at, consumer("G", "T"))
    assert at.notified == []


async def test_the_retry_topic_is_created(at: Desk) -> None:
    put_groups(at.groups, SubscriptionGroupConfig(group_name="G", retry_queue_nums=3))
    await beat(at, consumer("G", "T"))
    assert at.topics.table["%RETRY%G"] == TopicConfig(
        topic_name="%RETRY%G", read_queue_nums=3, write_queue_nums=3, perm=6
    )


async def test_a_group_whose_client_is_refused_is_not_created(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "GROUPS_PER_CONNECTION_MAX", 1)
    connection = FakeConnection()
    await beat(at, consumer("Taken", "T"), connection=connection)
    await beat(at, consumer("Refused", "T"), connection=connection)
    await beat(at, consumer("Taken", "T", "U"), connection=connection)
    assert subscriptions(at, "Taken") == {"T", "U"}
    assert "Refused" not in at.groups.table
    assert [topic for topic in at.topics.table if "%RETRY%" in topic] == ["%RETRY%Taken"]


async def test_the_retry_topic_of_units_and_of_ordered_topics(at: Desk) -> None:
    put_topics(at.topics, TopicConfig(topic_name="Ordered", order=True))
    await beat(at, consumer("U", "T", unit_mode=True), consumer("O", "T", "Ordered"))
    assert at.topics.table["%RETRY%U"].topic_sys_flag == 2
    assert not at.topics.table["%RETRY%U"].order
    assert at.topics.table["%RETRY%O"].order


async def test_an_unknown_group_is_skipped(tmp_path: Path) -> None:
    with desk(tmp_path, auto_create_subscription_group=False) as at:
        await beat(at, consumer("G", "T"), producers=("P",))
        assert at.consumers.find("G") is None
        assert "%RETRY%G" not in at.topics.table
        assert set(at.producers.groups) == {"P"}


async def test_a_bad_group_name_creates_no_topic(at: Desk) -> None:
    await beat(at, consumer("../x", "T"))
    assert at.consumers.find("../x") is None
    assert not [name for name in at.topics.table if "x" in name and "RETRY" in name]


async def test_pull_consumers_can_be_rejected(tmp_path: Path) -> None:
    pulls = consumer("Pull", "T", consume_type=ConsumeType.CONSUME_ACTIVELY)
    with desk(tmp_path, reject_pull_consumer=True) as at:
        await beat(at, pulls, consumer("Push", "T"))
        assert at.consumers.find("Pull") is None
        assert at.consumers.find("Push") is not None


@pytest.mark.parametrize(
    ("data", "remark"),
    [
        (HeartbeatData(consumer_data_set=[consumer("G", "T")]), "the client id is null"),
        (
            HeartbeatData(client_id="c", consumer_data_set=[consumer("G", "T"), consumer(None)]),
            "the group name is null",
        ),
        (
            HeartbeatData(
                client_id="c",
                consumer_data_set=[consumer("G", "T")],
                producer_data_set=[ProducerData()],
            ),
            "the group name is null",
        ),
    ],
)
async def test_half_a_heartbeat_registers_no_client(
    at: Desk, data: HeartbeatData, remark: str
) -> None:
    answer = await at.ask(RequestCode.HEART_BEAT, HEARTBEAT, body=encode_body(data))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert at.consumers.find("G") is None


async def test_a_client_id_that_is_too_long_is_not_kept(at: Desk) -> None:
    data = HeartbeatData(client_id="c" * 1025, producer_data_set=[ProducerData(group_name="P")])
    answer = await at.ask(RequestCode.HEART_BEAT, HEARTBEAT, body=encode_body(data))
    assert (answer.code, answer.remark) == (1, "the client id is longer than 1024")
    assert at.producers.groups == {}


@pytest.mark.parametrize("body", [b"", b"{", b'{"clientID":3}', b'{"consumerDataSet":[{}]'])
async def test_a_body_that_is_not_a_heartbeat(at: Desk, body: bytes) -> None:
    answer = await at.ask(RequestCode.HEART_BEAT, HEARTBEAT, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_heartbeat_that_is_too_long_is_not_read(at: Desk) -> None:
    answer = await at.ask(RequestCode.HEART_BEAT, HEARTBEAT, body=b"[" * ((1 << 20) + 1))
    assert answer.code == ResponseCode.INVALID_PARAMETER


# -- heartbeats with a fingerprint --------------------------------------------------------------


async def test_the_same_fingerprint_needs_no_subscriptions(at: Desk) -> None:
    full = consumer("G", "T")
    assert not await beat(at, full, fingerprint=7)
    assert not await beat(at, consumer("G"), fingerprint=7, without_sub=True)
    assert subscriptions(at) == {"T"}


async def test_another_fingerprint_needs_them(at: Desk) -> None:
    await beat(at, consumer("G", "T"), fingerprint=7)
    assert await beat(at, consumer("G", "T", "U"), fingerprint=8)
    assert subscriptions(at) == {"T", "U"}
    assert not await beat(at, consumer("G", "T", "U"), fingerprint=8)


async def test_a_first_kind_heartbeat_counts_as_another_fingerprint(at: Desk) -> None:
    assert await beat(at, consumer("G", "T"))
    assert await beat(at, consumer("G", "T"), fingerprint=7)


async def test_a_restarted_broker_needs_subscriptions(at: Desk) -> None:
    """As after a restart: the client thinks that its subscriptions are known."""
    assert await beat(at, consumer("G"), fingerprint=7, without_sub=True)
    assert subscriptions(at) == set()
    assert not await beat(at, consumer("G", "T"), fingerprint=7)
    assert subscriptions(at) == {"T"}


async def test_a_group_that_lost_its_connections_must_send_subscriptions(at: Desk) -> None:
    await beat(at, consumer("G", "T"), fingerprint=7)
    at.consumers.connection_closed(at.connection)  # type: ignore[arg-type]
    again = FakeConnection()
    assert await beat(at, consumer("G"), fingerprint=7, without_sub=True, connection=again)
    assert not await beat(at, consumer("G", "T"), fingerprint=7, connection=again)
    assert subscriptions(at) == {"T"}


async def test_a_new_group_with_subscriptions_need_not_send_them_again(at: Desk) -> None:
    assert not await beat(at, consumer("G", "T"), fingerprint=7)
    assert not await beat(at, producers=("P",), fingerprint=7, without_sub=True)


async def test_without_a_fingerprint_subscriptions_always_count(at: Desk) -> None:
    await beat(at, consumer("G", "T"), without_sub=True)
    assert subscriptions(at) == {"T"}


async def test_a_group_that_left_is_forgotten(at: Desk) -> None:
    await beat(at, consumer("G", "T"), fingerprint=7)
    header = headers.UnregisterClientRequestHeader(client_id="c1", consumer_group="G")
    await at.ask_ok(RequestCode.UNREGISTER_CLIENT, header)
    assert await beat(at, consumer("G"), fingerprint=7, without_sub=True)


async def test_fingerprints_do_not_pile_up(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_manage, "FINGERPRINTS_PRUNED_AT", 4)
    at.processor(ClientManageProcessor)._prune_at = 4
    for number in range(20):
        connection = FakeConnection()
        await beat(
            at, consumer(f"G{number}", "T"), fingerprint=1, client_id="c", connection=connection
        )
        at.consumers.connection_closed(connection)  # type: ignore[arg-type]
        assert len(at.processor(ClientManageProcessor)._fingerprints) <= 4


async def test_fingerprints_of_live_groups_stay(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_manage, "FINGERPRINTS_PRUNED_AT", 4)
    at.processor(ClientManageProcessor)._prune_at = 4
    for number in range(6):
        await beat(at, consumer(f"G{number}", "T"), fingerprint=1)
    assert at.processor(ClientManageProcessor)._prune_at == 8
    for number in range(6):
        assert not await beat(at, consumer(f"G{number}"), fingerprint=1, without_sub=True)


# -- unregistration -----------------------------------------------------------------------------


async def test_a_client_leaves(at: Desk) -> None:
    await beat(at, consumer("G", "T"), producers=("P",))
    await beat(at, consumer("G", "T"), client_id="c2", connection=FakeConnection())
    at.notified.clear()
    header = headers.UnregisterClientRequestHeader(
        client_id="c1", producer_group="P", consumer_group="G"
    )
    answer = await at.ask_ok(RequestCode.UNREGISTER_CLIENT, header)
    assert answer.ext_fields == {}
    assert at.producers.groups == {}
    info = at.consumers.find("G")
    assert info is not None
    assert info.client_ids() == ["c2"]
    assert at.notified == [("G", ["c2"])]


async def test_a_client_leaves_quietly(at: Desk) -> None:
    put_groups(
        at.groups, SubscriptionGroupConfig(group_name="G", notify_consumer_ids_changed_enable=False)
    )
    await beat(at, consumer("G", "T"))
    await beat(at, consumer("G", "T"), client_id="c2", connection=FakeConnection())
    header = headers.UnregisterClientRequestHeader(client_id="c1", consumer_group="G")
    await at.ask_ok(RequestCode.UNREGISTER_CLIENT, header)
    assert at.notified == []


async def test_leaving_an_unknown_group_creates_nothing(at: Desk) -> None:
    header = headers.UnregisterClientRequestHeader(
        client_id="c1", producer_group="P", consumer_group="New"
    )
    await at.ask_ok(RequestCode.UNREGISTER_CLIENT, header)
    assert "New" not in at.groups.table


# -- expressions --------------------------------------------------------------------------------


def checked(expression_type: str, text: str | None = "a > 1") -> bytes:
    subscription = SubscriptionData(topic="T", expression_type=expression_type, sub_string=text)
    return encode_body(CheckClientRequestBody(client_id="c", subscription_data=subscription))


@pytest.mark.parametrize("body", [b"", b"{}", checked("TAG"), checked("")])
async def test_tags_need_no_check(at: Desk, body: bytes) -> None:
    answer = await at.ask_ok(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert (answer.remark, answer.ext_fields) == (None, None)


async def test_expressions_may_be_disabled(at: Desk) -> None:
    remark = "The broker does not support consumer to filter message by SQL92"
    answer = await at.ask(RequestCode.CHECK_CLIENT_CONFIG, body=checked("SQL92"))
    assert (answer.code, answer.remark) == (1, remark)


async def test_expressions_are_compiled(tmp_path: Path) -> None:
    with desk(tmp_path, property_filter=True) as at:
        await at.ask_ok(RequestCode.CHECK_CLIENT_CONFIG, body=checked("SQL92"))
        for bad in ("a >", None):
            answer = await at.ask(RequestCode.CHECK_CLIENT_CONFIG, body=checked("SQL92", bad))
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert answer.remark


# -- many groups --------------------------------------------------------------------------------


async def test_a_heartbeat_of_many_groups_is_processed_in_steps(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_manage, "GROUPS_A_STEP", 10)
    data = HeartbeatData(
        client_id="c1",
        consumer_data_set=[consumer(f"G{number}", "T") for number in range(25)],
        producer_data_set=[ProducerData(group_name=f"P{number}") for number in range(25)],
    )
    beating = asyncio.ensure_future(
        at.ask(RequestCode.HEART_BEAT, HEARTBEAT, body=encode_body(data))
    )
    seen: list[int] = []
    while not beating.done():
        await asyncio.sleep(0)
        seen.append(len(at.consumers.table) + len(at.producers.groups))
    steps = [later - sooner for sooner, later in pairwise([0, *seen])]
    assert max(steps) <= 10
    assert sum(steps) == 50
    assert beating.result().code == ResponseCode.SUCCESS


@pytest.mark.parametrize("count", [9, 10, 11])
async def test_all_groups_are_processed_whatever_the_step_size(
    at: Desk, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(client_manage, "GROUPS_A_STEP", 10)
    names = [f"G{number}" for number in range(count)]
    await beat(at, *(consumer(name) for name in names))
    assert set(at.consumers.table) == set(names)


async def test_a_client_that_leaves_ends_its_heartbeat(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_manage, "GROUPS_A_STEP", 10)
    connection = FakeConnection()
    beating = asyncio.ensure_future(
        beat(
            at,
            *(consumer(f"G{number}") for number in range(30)),
            producers=("P",),
            connection=connection,
        )
    )
    while not at.consumers.table:  # noqa: ASYNC110 - nothing reports the first step
        await asyncio.sleep(0)
    monkeypatch.setattr(connection, "is_closed", True)
    await beating
    assert len(at.consumers.table) == 10
    assert set(at.producers.groups) == set()
