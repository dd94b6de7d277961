"""Creating, changing, deleting and showing topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from roquet.broker.admin import pages as admin_pages
from roquet.broker.manager.change_log import ChangeLog
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.topic import (
    CreateTopicListRequestBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicOffset,
    TopicStatsTable,
)
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from tests.table_changes import put_topics
from tests.unit.broker.admin.kit import Desk, desk
from tests.unit.broker.manager.kit import FillingDisk
from tests.unit.store.kit import NOW_MS

LIST = headers.CreateTopicListRequestHeader()


def wanted(topic: str = "New", **changes: object) -> headers.CreateTopicRequestHeader:
    settings: dict[str, object] = {
        "topic": topic,
        "default_topic": "broker-a",
        "read_queue_nums": 4,
        "write_queue_nums": 8,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        "topic_sys_flag": 0,
    }
    return headers.CreateTopicRequestHeader(**(settings | changes))  # type: ignore[arg-type]


async def create(at: Desk, topic: str = "New", **changes: object) -> RemotingCommand:
    return await at.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted(topic, **changes))


async def create_list(at: Desk, *topics: TopicConfig) -> RemotingCommand:
    body = encode_body(CreateTopicListRequestBody(topic_config_list=list(topics)))
    return await at.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, LIST, body=body)


async def test_a_topic_is_created(at: Desk) -> None:
    version = at.topics.data_version.counter
    answer = await create(at, order=True, topic_sys_flag=None, perm=4)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "not set any response code"
    assert at.topics.table["New"] == TopicConfig(
        topic_name="New", read_queue_nums=4, write_queue_nums=8, perm=4, order=True
    )
    assert at.topics.data_version.counter == version + 1
    assert at.registrations == 1


async def test_the_same_again_changes_nothing(at: Desk) -> None:
    await create(at)
    version = at.topics.data_version.counter
    answer = await create(at)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "not set any response code"
    assert at.topics.data_version.counter == version
    assert at.registrations == 1


async def test_attributes_are_set_and_removed(at: Desk) -> None:
    await create(at, attributes="+message.type=FIFO,+reserve.time=5")
    await create(at, attributes="-reserve.time")
    assert at.topics.table["New"].attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("topic", "changes", "code", "remark"),
    [
        ("", {}, 29, "The specified topic is blank."),
        (
            "a/b",
            {},
            29,
            "The specified topic: a/b, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "x" * 128,
            {},
            29,
            f"The specified topic: {'x' * 128}, is longer than topic max length: 127",
        ),
        ("TBW102", {}, 29, "The topic[TBW102] is conflict with system topic."),
        ("broker-a", {}, 29, "The topic[broker-a] is conflict with system topic."),
        ("rmq_sys_x", {}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        (
            "RMQ_SYS_TRACE_TOPIC",
            {},
            29,
            "The topic[RMQ_SYS_TRACE_TOPIC] is conflict with system topic.",
        ),
        ("New", {"topic_filter_type": "ANY"}, 29, "topicFilterType = [ANY] value invalid"),
        ("New", {"perm": 8}, 29, "perm = [8] value invalid"),
        ("New", {"perm": -1}, 29, "perm = [-1] value invalid"),
        (
            "New",
            {"read_queue_nums": -1},
            29,
            "readQueueNums = [-1], writeQueueNums = [8]: a topic has 0 to 65536 queues",
        ),
        (
            "New",
            {"write_queue_nums": 65_537},
            29,
            "readQueueNums = [4], writeQueueNums = [65537]: a topic has 0 to 65536 queues",
        ),
        ("New", {"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ("New", {"attributes": "a=b"}, 1, "add/alter attribute format is wrong: a"),
        ("New", {"attributes": "+a="}, 1, "add/alter attribute format is wrong: +a"),
        ("New", {"attributes": "a"}, 1, "delete attribute format is wrong: a"),
        ("New", {"attributes": "+a=1,+a=2"}, 1, "key duplication: +a"),
        ("New", {"attributes": "+none=1"}, 1, "unsupported key: none"),
        (
            "New",
            {"attributes": "-message.type"},
            1,
            "only add attribute is supported while creating topic. key: message.type",
        ),
    ],
)
async def test_what_is_refused(
    at: Desk, topic: str, changes: dict[str, object], code: int, remark: str
) -> None:
    before = dict(at.topics.table)
    answer = await create(at, topic, **changes)
    assert (answer.code, answer.remark) == (code, remark)
    assert at.topics.table == before
    assert at.registrations == 0


async def test_system_topics_can_be_opened_up(tmp_path: Path) -> None:
    with desk(tmp_path, validate_system_topic_when_update_topic=False) as at:
        assert (await create(at, "TBW102", perm=7)).code == ResponseCode.SUCCESS
        assert at.topics.table["TBW102"].read_queue_nums == 4


async def test_mixed_types_can_be_allowed(tmp_path: Path) -> None:
    with desk(tmp_path, mixed_message_type=True) as at:
        answer = await create(at, attributes="+message.type=MIXED")
        assert answer.code == ResponseCode.SUCCESS
        assert at.topics.table["New"].attributes == {"message.type": "MIXED"}


async def test_a_topic_that_cannot_be_saved_is_not_created(tmp_path: Path) -> None:
    disk = FillingDisk()
    with desk(tmp_path, files=disk) as at:
        disk.is_full = True
        answer = await create(at)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "topics.json was not saved: there is no space."
        assert "New" not in at.topics.table
        assert at.registrations == 0


async def test_a_list_is_created_at_once(at: Desk) -> None:
    at.add_topic("Old")
    topics = [at.topics.table["Old"], TopicConfig(topic_name="A"), TopicConfig(topic_name="B")]
    answer = await create_list(at, *topics)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert {"Old", "A", "B"} <= at.topics.table.keys()
    assert at.registrations == 1


async def test_a_list_with_one_bad_name_creates_none(at: Desk) -> None:
    answer = await create_list(at, TopicConfig(topic_name="A"), TopicConfig(topic_name="b b"))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "A" not in at.topics.table


@pytest.mark.parametrize("body", [b"{}", b'{"topicConfigList":[]}'])
async def test_an_empty_list(at: Desk, body: bytes) -> None:
    answer = await at.ask_ok(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, LIST, body=body)
    assert answer.body == b""
    assert at.registrations == 0


async def test_a_list_that_is_too_long_is_not_read(at: Desk) -> None:
    body = b" " * ((4 << 20) + 1)
    answer = await at.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, LIST, body=body)
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_a_deleted_topic_leaves_nothing(at: Desk, tmp_path: Path) -> None:
    at.add_topic("Gone")
    at.add_topic("Kept")
    for topic in ("Gone", "Kept"):
        at.put(topic, 0, 2)
        at.offsets.commit("G", topic, 0, 2)
    at.topics.table["%RETRY%G+Gone"] = TopicConfig(topic_name="%RETRY%G+Gone")
    at.topics.table["%RETRY%G_Gone"] = TopicConfig(topic_name="%RETRY%G_Gone")
    at.topics.table["%RETRY%G"] = TopicConfig(topic_name="%RETRY%G")
    header = headers.DeleteTopicRequestHeader(topic="Gone")
    answer = await at.ask_ok(RequestCode.DELETE_TOPIC_IN_BROKER, header)
    assert answer.remark is None
    assert {name for name in at.topics.table if "Gone" in name} == set()
    assert {"Kept", "%RETRY%G"} <= at.topics.table.keys()
    assert at.offsets.table == {"Kept@G": {0: 2}}
    assert at.store.max_offset_in_queue("Gone", 0) == 0
    assert not (tmp_path / "store" / "consumequeue" / "Gone").exists()
    assert "Gone" not in (tmp_path / "store" / "config" / "consumerOffset.json").read_text()


async def test_a_topic_recreated_during_its_deletion_keeps_its_messages(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.add_topic("T")
    at.put("T", 0, 2)
    wait = at.topics.when_committed

    def make_again(done: Callable[[Exception | None], None], error: Exception | None) -> None:
        done(error)
        at.add_topic("T")
        at.put("T", 0, 1)

    monkeypatch.setattr(at.topics, "when_committed", lambda done: wait(partial(make_again, done)))
    header = headers.DeleteTopicRequestHeader(topic="T")
    await at.ask_ok(RequestCode.DELETE_TOPIC_IN_BROKER, header)
    assert "T" in at.topics.table
    assert at.store.max_offset_in_queue("T", 0) == 1


async def test_a_static_topic_stays_until_its_mapping_is_deleted(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    at.add_topic("T")
    at.mappings.table["T"] = TopicQueueMappingDetail(broker_name="broker-a", topic="T")
    wait = at.mappings.committed

    async def committed() -> None:
        await wait()
        assert "T" not in at.mappings.table
        assert "T" in at.topics.table

    monkeypatch.setattr(at.mappings, "committed", committed)
    header = headers.DeleteTopicRequestHeader(topic="T")
    await at.ask_ok(RequestCode.DELETE_TOPIC_IN_BROKER, header)
    assert "T" not in at.topics.table


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (" ", "The specified topic is blank."),
        ("DefaultCluster", "The topic[DefaultCluster] is conflict with system topic."),
    ],
)
async def test_deletions_that_are_refused(at: Desk, topic: str, remark: str) -> None:
    header = headers.DeleteTopicRequestHeader(topic=topic)
    answer = await at.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header)
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


async def test_deleting_an_unknown_topic_succeeds(at: Desk) -> None:
    version = at.topics.data_version.counter
    header = headers.DeleteTopicRequestHeader(topic="Nobody")
    await at.ask_ok(RequestCode.DELETE_TOPIC_IN_BROKER, header)
    assert at.topics.data_version.counter == version


def test_a_name_that_is_a_path_deletes_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    header = headers.DeleteTopicRequestHeader(topic="../../outside")
    with desk(tmp_path) as at:
        asyncio.run(at.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header))
    assert outside.exists()


async def pages(
    at: Desk, header: headers.GetAllTopicConfigRequestHeader
) -> tuple[list[str], TopicConfigAndMappingSerializeWrapper]:
    answer = await at.ask_ok(RequestCode.GET_ALL_TOPIC_CONFIG, header)
    assert answer.ext_fields == {"totalTopicNum": str(len(at.topics.table))}
    wrapper = await at.body_of(
        RequestCode.GET_ALL_TOPIC_CONFIG, header, TopicConfigAndMappingSerializeWrapper
    )
    return list(wrapper.topic_config_table), wrapper


async def test_all_topics_at_once(at: Desk) -> None:
    names, wrapper = await pages(at, headers.GetAllTopicConfigRequestHeader())
    assert names == list(at.topics.table)
    assert wrapper.data_version == at.topics.data_version
    assert wrapper.topic_queue_mapping_detail_map == {}


async def test_many_topics_are_encoded_off_the_loop(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = await at.ask_ok(
        RequestCode.GET_ALL_TOPIC_CONFIG, headers.GetAllTopicConfigRequestHeader()
    )
    monkeypatch.setattr(admin_pages, "WRITTEN_AT_ONCE_MAX", 0)
    long = await at.ask_ok(
        RequestCode.GET_ALL_TOPIC_CONFIG, headers.GetAllTopicConfigRequestHeader()
    )
    assert long.body == short.body


async def test_a_table_too_large_for_a_frame_must_be_requested_in_pages(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await at.ask_ok(
        RequestCode.GET_ALL_TOPIC_CONFIG, headers.GetAllTopicConfigRequestHeader()
    )
    remark = (
        f"{len(at.topics.table)} entries do not fit a frame of {{}} bytes: ask for pages of at "
        "most 2000, by topicSeq and maxTopicNum or groupSeq and maxGroupNum"
    )
    # One that is too long is refused after it was encoded, one that is much too long before.
    for frame_bytes in (len(whole.body) + admin_pages.HEADER_BYTES_MAX - 1, 1_000):
        monkeypatch.setattr(admin_pages, "MAX_FRAME_BYTES", frame_bytes)
        answer = await at.ask(
            RequestCode.GET_ALL_TOPIC_CONFIG, headers.GetAllTopicConfigRequestHeader()
        )
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            remark.format(frame_bytes),
        )


def test_sorted_names_follow_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"b": 1, "d": 2}
    changes = ChangeLog(names_max=4)
    names = admin_pages.SortedNames(table, changes)
    assert names.get() == ["b", "d"]
    sorts: list[None] = []

    def sort(names: Iterable[str]) -> list[str]:
        sorts.append(None)
        return sorted(names)

    monkeypatch.setattr(admin_pages, "sorted", sort, raising=False)
    for name in ("c", "e", "a"):
        table[name] = 0
        changes.note(name)
    del table["d"]
    changes.note("d")
    assert names.get() == ["a", "b", "c", "e"]
    assert names.get() == ["a", "b", "c", "e"]
    assert sorts == []
    for name in ("x", "y", "z", "zz", "zzz"):
        table[name] = 0
        changes.note(name)
    assert names.get() == sorted(table)
    assert sorts == [None]


async def test_all_topics_by_pages(at: Desk) -> None:
    version = encode_body(at.topics.data_version).decode()
    found: list[str] = []
    while len(found) < len(at.topics.table):
        header = headers.GetAllTopicConfigRequestHeader(
            topic_seq=len(found), data_version=version, max_topic_num=4
        )
        names, _ = await pages(at, header)
        assert 0 < len(names) <= 4
        found += names
    assert found == sorted(at.topics.table)


@pytest.mark.parametrize("version", ["", " ", "{", "null", '{"counter":99}'])
async def test_another_version_starts_again(at: Desk, version: str) -> None:
    header = headers.GetAllTopicConfigRequestHeader(
        topic_seq=3, data_version=version, max_topic_num=2
    )
    assert (await pages(at, header))[0] == sorted(at.topics.table)[:2]


@pytest.mark.parametrize(("start", "count"), [(-5, 1), (0, -1), (1 << 30, 2)])
async def test_odd_pages(at: Desk, start: int, count: int) -> None:
    version = encode_body(at.topics.data_version).decode()
    header = headers.GetAllTopicConfigRequestHeader(
        topic_seq=start, data_version=version, max_topic_num=count
    )
    expected = sorted(at.topics.table)[max(start, 0) :][: max(count, 0)]
    assert (await pages(at, header))[0] == expected


async def test_one_topic(at: Desk) -> None:
    at.add_topic("One", 2, **{"message.type": "FIFO"})
    header = headers.TopicRequestHeader(topic="One")
    assert (await at.ask_ok(RequestCode.GET_TOPIC_CONFIG, header)).body == (
        b'{"attributes":{"message.type":"FIFO"},"order":false,"perm":6,"readQueueNums":2,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"One","topicSysFlag":0,"writeQueueNums":2}'
    )


async def test_no_such_topic(at: Desk) -> None:
    header = headers.TopicRequestHeader(topic="None")
    answer = await at.ask(RequestCode.GET_TOPIC_CONFIG, header)
    assert (answer.code, answer.remark) == (17, "No topic in this broker. topic: None")
    answer = await at.ask(RequestCode.GET_TOPIC_STATS_INFO, header)
    assert (answer.code, answer.remark) == (17, "topic[None] not exist")


async def test_stats_of_a_topic(at: Desk) -> None:
    put_topics(at.topics, TopicConfig(topic_name="S", read_queue_nums=1, write_queue_nums=2))
    at.put("S", 1, 3)
    table = await at.body_of(
        RequestCode.GET_TOPIC_STATS_INFO, headers.TopicRequestHeader(topic="S"), TopicStatsTable
    )
    assert table.offset_table == {
        MessageQueue("S", "broker-a", 0): TopicOffset(),
        MessageQueue("S", "broker-a", 1): TopicOffset(
            last_update_timestamp_ms=NOW_MS + 3, max_offset=3, min_offset=0
        ),
    }
    assert table.topic_put_tps == 0.0
