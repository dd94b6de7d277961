"""What a slave copies from its master, and when the copies take effect."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.service import master_tables
from roquet.broker.service.slave_synchronize import SlaveSynchronize
from roquet.errors import ConnectFailed, ProtocolError
from roquet.model.fastjson import loads
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from roquet.remoting.bodies.client import MessageRequestMode, SetMessageRequestModeRequestBody
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.headers.base import Header
from roquet.runtime.clock import ManualClock
from roquet.store.config import BrokerRole
from tests.table_changes import drop_group, drop_topics, forbid, put_groups, put_mapping, put_topics
from tests.unit.broker.admin.kit import Desk, desk
from tests.unit.broker.components_kit import components_of
from tests.unit.store import kit

MASTER = "127.0.0.1:1"


class DirectClient:
    """Hands requests to the master's desk.

    Attributes:
        codes: What was requested.
        old: Codes that the master does not know.
        is_cut: Whether the master cannot be reached.
    """

    def __init__(self, master: Desk) -> None:
        self.master = master
        self.codes: list[int] = []
        self.old: set[int] = set()
        self.is_cut = False

    async def invoke(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        assert address == MASTER
        assert timeout_ms is not None
        if self.is_cut:
            raise ConnectFailed("connect to 127.0.0.1:1 failed")
        self.codes.append(code)
        request = create_request(code, header, opaque=1, body=body)
        if code in self.old:
            return create_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return await self.master.handle(request, self.master.connection)


class Pair:
    """A master, and a slave whose log is filled by hand."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.master = stack.enter_context(desk(root / "master"))
        self.client = DirectClient(self.master)
        config = BrokerConfig(
            broker_name=self.master.config.broker_name,
            broker_id=1,
            slave_read=True,
            store_root=str(root / "slave"),
        )
        store_config = kit.config(broker_role=BrokerRole.SLAVE)
        clock = ManualClock(kit.NOW_MS + 1)
        self.store = stack.enter_context(
            kit.opened(root / "slave", config=store_config, clock=clock)
        )
        self.slave = components_of(
            config, self.store, clock, client=cast("RemotingClient", self.client)
        )
        self.root = root / "slave" / "config"
        self.slave.master.said("ns", MASTER, "127.0.0.1:2")
        self.sync = SlaveSynchronize(self.slave)

    def replicate(self) -> None:
        """Bring the slave's log to the end of the master's."""
        start = self.store.max_physical_offset
        for part in self.master.store.bulk_commit_log_data(
            start, self.master.store.max_physical_offset - start
        ):
            assert self.store.append_to_commit_log(self.store.max_physical_offset, part)

    def file(self, name: str) -> dict[str, object]:
        return cast("dict[str, object]", loads((self.root / name).read_bytes()))


@pytest.fixture(name="pair")
def _pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(tmp_path, stack)


async def test_topics_and_groups_are_copied_and_deleted(pair: Pair) -> None:
    master, slave = pair.master, pair.slave
    put_topics(
        master.topics,
        *(TopicConfig(topic_name=name, read_queue_nums=3, order=True) for name in ("A", "B")),
    )
    put_groups(master.groups, SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    forbid(master.groups, "G", "A", 1, forbidden=True)
    await pair.sync.sync_all()
    assert slave.topics.table["A"] == master.topics.table["A"]
    assert slave.topics.data_version == master.topics.data_version
    assert slave.groups.table["G"] == master.groups.table["G"]
    assert slave.groups.is_forbidden("G", "A", 1)
    assert "A" in cast("dict[str, object]", pair.file("topics.json")["topicConfigTable"])
    drop_topics(master.topics, "B")
    drop_group(master.groups, "G")
    await pair.sync.sync_all()
    assert "B" not in slave.topics.table
    assert "G" not in slave.groups.table
    assert not slave.groups.forbidden
    assert slave.topics.system_topics <= set(slave.topics.table)


async def test_what_has_not_changed_is_not_read_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_tables, "PAGE_ENTRIES", 4)
    pages = -(-len(pair.master.topics.table) // 4)
    await pair.sync.sync_all()
    assert pair.client.codes.count(RequestCode.GET_ALL_TOPIC_CONFIG) == 2 * pages
    pair.client.codes.clear()
    await pair.sync.sync_all()
    assert pair.client.codes.count(RequestCode.GET_ALL_TOPIC_CONFIG) == 1
    assert pair.client.codes.count(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) == 1


async def test_a_table_that_changes_between_pages_is_read_from_the_start(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_tables, "PAGE_ENTRIES", 4)
    handle = pair.master.handle

    async def change_after_the_second(
        request: RemotingCommand, connection: object
    ) -> RemotingCommand:
        answer = await handle(request, connection)
        if pair.client.codes.count(RequestCode.GET_ALL_TOPIC_CONFIG) == 2:
            put_topics(pair.master.topics, TopicConfig(topic_name="0"))
        return answer

    monkeypatch.setattr(pair.master, "handle", change_after_the_second)
    await pair.sync.sync_all()
    assert pair.slave.topics.table == pair.master.topics.table


async def test_a_change_that_is_only_in_the_version_is_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, topics = pair.master.handle, pair.master.topics

    async def change_while_answering(
        request: RemotingCommand, connection: object
    ) -> RemotingCommand:
        answer = await handle(request, connection)
        if "A" not in topics.table and request.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            before = encode_body(topics.data_version)
            put_topics(topics, TopicConfig(topic_name="A"))
            assert before in answer.body
            answer.body = answer.body.replace(before, encode_body(topics.data_version), 1)
        return answer

    monkeypatch.setattr(pair.master, "handle", change_while_answering)
    await pair.sync.sync_all()
    assert "A" in pair.slave.topics.table


async def test_a_change_on_the_slave_is_replaced(pair: Pair) -> None:
    await pair.sync.sync_all()
    pair.slave.groups.find("made-here")
    await pair.sync.sync_all()
    assert "made-here" not in pair.slave.groups.table


async def test_queues_of_a_deleted_topic_are_deleted(pair: Pair) -> None:
    pair.master.add_topic("A")
    pair.master.put("A", 0, 3)
    pair.replicate()
    await pair.sync.sync_all()
    assert pair.store.max_offset_in_queue("A", 0) == 3
    pair.master.put("A", 0, 2)
    drop_topics(pair.master.topics, "A")
    await pair.sync.sync_all()
    assert "A" not in pair.slave.topics.table
    assert pair.store.max_offset_in_queue("A", 0) == 3
    pair.replicate()
    await pair.sync.sync_all()
    assert pair.store.max_offset_in_queue("A", 0) == 0


async def test_offsets_that_were_kept_back_do_not_outlive_their_topic(pair: Pair) -> None:
    pair.master.add_topic("A")
    pair.master.put("A", 0, 3)
    pair.master.parts.offsets.commit("G", "A", 0, 3)
    await pair.sync.sync_all()
    drop_topics(pair.master.topics, "A")
    pair.master.parts.offsets.remove_topic("A")
    pair.replicate()
    await pair.sync.sync_all()
    assert pair.slave.offsets.query("G", "A", 0) == -1


async def test_queues_stay_when_the_master_lost_its_table(pair: Pair) -> None:
    pair.master.add_topic("A")
    pair.master.put("A", 0, 3)
    pair.replicate()
    await pair.sync.sync_all()
    drop_topics(pair.master.topics, "A")
    pair.master.topics.data_version.counter = 0
    await pair.sync.sync_all()
    assert "A" not in pair.slave.topics.table
    assert pair.store.max_offset_in_queue("A", 0) == 3


async def test_a_former_master_keeps_queues_of_topics_that_the_new_one_never_had(
    pair: Pair,
) -> None:
    put_topics(pair.slave.topics, TopicConfig(topic_name="A"))
    pair.master.put("A", 0, 3)
    pair.replicate()
    version = pair.master.topics.data_version
    version.state_version = pair.slave.topics.data_version.state_version
    version.counter = pair.slave.topics.data_version.counter + 1
    await pair.sync.sync_all()
    assert "A" not in pair.slave.topics.table
    assert pair.store.max_offset_in_queue("A", 0) == 3


async def test_mappings_of_static_topics_are_copied(pair: Pair) -> None:
    name = pair.master.config.broker_name
    item = LogicQueueMappingItem(broker_name=name, queue_id=1)
    put_topics(pair.master.topics, TopicConfig(topic_name="S"))
    put_mapping(
        pair.master.mappings,
        TopicQueueMappingDetail(
            topic="S", broker_name=name, epoch=2, total_queues=1, hosted_queues={0: [item]}
        ),
    )
    await pair.sync.sync_all()
    assert pair.slave.mappings.table == pair.master.mappings.table
    assert pair.slave.mappings.data_version == pair.master.mappings.data_version


async def test_offsets_wait_until_the_log_is_here(pair: Pair) -> None:
    master, slave = pair.master, pair.slave
    master.add_topic("A")
    master.put("A", 0, 5)
    master.offsets.commit("G", "A", 0, 5)
    master.parts.delay_offsets.update(3, 7)
    await pair.sync.sync_all()
    assert slave.offsets.query("G", "A", 0) == -1
    assert slave.delay_offsets.table == {}
    master.offsets.commit("G", "A", 0, 4)
    pair.replicate()
    await pair.sync.sync_all()
    assert slave.offsets.query("G", "A", 0) == 5
    assert slave.delay_offsets.table == {3: 7}
    assert pair.file("delayOffset.json")["offsetTable"] == {3: 7}
    assert pair.file("consumerOffset.json")["offsetTable"] == {"A@G": {0: 5}}
    await pair.sync.sync_all()
    assert slave.offsets.query("G", "A", 0) == 4


async def test_offsets_of_a_master_that_lost_its_end_are_dropped(pair: Pair) -> None:
    master = pair.master
    master.add_topic("A")
    master.put("A", 0, 1)
    end = master.store.max_physical_offset
    master.put("A", 0, 4)
    master.offsets.commit("G", "A", 0, 5)
    await pair.sync.sync_all()
    master.store.truncate_to(end)
    master.offsets.commit("G", "A", 0, 1)
    pair.replicate()
    await pair.sync.sync_all()
    assert pair.slave.offsets.query("G", "A", 0) == 1


async def test_offsets_of_a_slave_only_stay(pair: Pair) -> None:
    pair.slave.offsets.commit("old", "A", 0, 9)
    pair.slave.offsets.commit("G", "A", 1, 9)
    pair.master.offsets.commit("G", "A", 0, 2)
    await pair.sync.sync_all()
    assert pair.slave.offsets.table == {"A@old": {0: 9}, "A@G": {0: 2}}


async def test_request_modes_are_copied_and_kept(pair: Pair) -> None:
    mode = SetMessageRequestModeRequestBody(
        topic="A", consumer_group="G", mode=MessageRequestMode.POP, pop_share_queue_nums=2
    )
    pair.master.parts.request_modes.adopt({"A": {"G": mode}})
    await pair.sync.sync_all()
    assert pair.slave.request_modes.table == {"A": {"G": mode}}
    assert pair.file("messageRequestMode.json") == {
        "messageRequestModeMap": {
            "A": {"G": {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2, "topic": "A"}}
        }
    }


async def test_a_master_before_5_0_has_no_modes_and_tells_the_end_of_its_log_otherwise(
    pair: Pair,
) -> None:
    pair.client.old = {RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.GET_BROKER_HA_STATUS}
    pair.master.put("A", 0, 1)
    pair.master.offsets.commit("G", "A", 0, 1)
    await pair.sync.sync_all()
    assert pair.slave.offsets.query("G", "A", 0) == -1
    pair.replicate()
    await pair.sync.sync_all()
    assert pair.slave.offsets.query("G", "A", 0) == 1


async def test_an_unreachable_master_is_logged_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "roquet.broker.service.slave_synchronize")
    pair.client.is_cut = True
    for _ in range(3):
        await pair.sync.sync_all()
    pair.client.is_cut = False
    for _ in range(2):
        await pair.sync.sync_all()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "connect to 127.0.0.1:1 failed" in lines[0]
    assert "copied again" in lines[1]


async def test_names_that_could_not_be_directories_are_ignored(pair: Pair) -> None:
    pair.master.topics.table["../up"] = TopicConfig(topic_name="../up")
    pair.master.topics.data_version.counter += 1
    pair.master.groups.table["a/b"] = SubscriptionGroupConfig(group_name="a/b")
    pair.master.groups.data_version.counter += 1
    await pair.sync.sync_all()
    assert "../up" not in pair.slave.topics.table
    assert "a/b" not in pair.slave.groups.table


async def test_a_table_without_an_end_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_tables, "PAGE_ENTRIES", 2)
    monkeypatch.setattr(master_tables, "ENTRIES_MAX", 3)
    tables = master_tables.MasterTables(cast("RemotingClient", pair.client))
    version = pair.slave.topics.data_version
    with pytest.raises(ProtocolError, match="incomplete or too long"):
        await tables.topics(MASTER, version, version)
