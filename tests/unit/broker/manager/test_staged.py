"""Group commit: many changes share a write, and none takes effect before it is in the file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import staged as module
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.errors import StoreError
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Buffer
from tests.table_changes import put_topics
from tests.unit.broker.manager.kit import Calls, FillingDisk, warnings_of


class SlowDisk(FillingDisk):
    """A disk that writes on demand, and counts files, not pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.may_write.set()
        self.files = 0

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        assert threading.current_thread() is not threading.main_thread(), "blocks the loop"
        assert self.may_write.wait(60)
        self.files += position == 0
        super().write_at(fd, data, position)


class Stage:
    """Managers on a disk of their own."""

    def __init__(self, root: Path) -> None:
        self.config = BrokerConfig(store_root=str(root))
        self.disk = SlowDisk()
        self.clock = ManualClock()
        self.topics = self.again()
        self.groups = SubscriptionGroupManager.at(self.config, self.disk, self.clock)
        self.offsets = ConsumerOffsetManager.at(self.config, self.disk, self.clock)
        self.told = Calls()
        self.topics.changed.append(self.told)

    def again(self) -> TopicConfigManager:
        topics = TopicConfigManager.at(self.config, self.disk, self.clock)
        assert topics.load() is None
        return topics

    async def update(self, name: str, perm: int = 6) -> None:
        self.topics.stage_all([TopicConfig(topic_name=name, perm=perm)])
        await self.topics.committed()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_two_thousand_changes_take_two_writes(stage: Stage) -> None:
    stage.disk.may_write.clear()
    first = asyncio.ensure_future(stage.update("first"))
    for _ in range(3):
        await asyncio.sleep(0)
    others = [asyncio.ensure_future(stage.update(f"T{number}")) for number in range(2_000)]
    await asyncio.sleep(0)
    assert stage.topics.select("first") is None, "it is not in the file yet"
    stage.disk.may_write.set()
    await first
    await asyncio.gather(*others)
    assert stage.disk.files == 2
    assert stage.told.count == 2
    assert stage.topics.data_version.counter == 2_001
    again = stage.again()
    assert again.table == stage.topics.table
    assert again.data_version == stage.topics.data_version
    assert stage.topics.begin_persist() is None


async def test_a_change_builds_on_one_that_is_staged(stage: Stage) -> None:
    new = TopicConfig(topic_name="T", attributes={"+message.type": "FIFO"})
    more = TopicConfig(topic_name="T", attributes={"+reserve.time": "5"})
    stage.topics.stage_all([new])
    stage.topics.stage_all([more])
    await stage.topics.committed()
    topic = stage.topics.select("T")
    assert topic is not None
    assert topic.attributes == {"message.type": "FIFO", "reserve.time": "5"}
    assert stage.disk.files == 1


async def test_a_failed_write_drops_staged_changes_and_is_retried(stage: Stage) -> None:
    await stage.update("kept", perm=6)
    stage.disk.is_full = True
    failed = await asyncio.gather(
        stage.update("kept", perm=4), stage.update("lost"), return_exceptions=True
    )
    assert [type(error).__mro__[1] for error in failed] == [StoreError, StoreError]
    kept = stage.topics.select("kept")
    assert kept is not None
    assert kept.perm == 6
    assert stage.topics.select("lost") is None
    assert stage.topics.data_version.counter == 1
    assert stage.topics.begin_persist() is not None, "the file may hold what was dropped"
    stage.disk.is_full = False
    await stage.update("next")
    assert stage.again().table == stage.topics.table


async def test_changes_during_a_write_that_fails_are_dropped_with_it(stage: Stage) -> None:
    stage.disk.may_write.clear()
    first = asyncio.ensure_future(stage.update("A"))
    for _ in range(3):
        await asyncio.sleep(0)
    stage.disk.is_full = True
    second = asyncio.ensure_future(stage.update("B"))
    await asyncio.sleep(0)
    stage.disk.may_write.set()
    for change in (first, second):
        with pytest.raises(StoreError):
            await change
    assert stage.topics.select("A") is stage.topics.select("B") is None


async def test_a_snapshot_of_the_periodic_write_has_staged_changes(stage: Stage) -> None:
    stage.topics.stage_all([TopicConfig(topic_name="T")])
    job = stage.topics.begin_persist()
    assert job is not None
    committed = asyncio.ensure_future(stage.topics.committed())
    await asyncio.to_thread(job)
    await committed
    assert stage.again().select("T") is not None
    assert stage.topics.select("T") is not None


async def test_groups_and_their_restrictions_share_a_write(stage: Stage) -> None:
    groups = stage.groups
    groups.stage_all([SubscriptionGroupConfig(group_name="g")])
    groups.stage_forbidden("g", "T", 1, forbidden=True)
    groups.stage_forbidden("g", "T", 2, forbidden=True)
    groups.stage_forbidden("g", "U", 1, forbidden=True)
    assert groups.forbidden == {}
    await groups.committed()
    assert groups.forbidden == {"g": {"T": 6, "U": 2}}
    groups.stage_forbidden("g", "U", 1, forbidden=False)
    groups.stage_delete("g")
    await groups.committed()
    assert "g" not in groups.table
    assert groups.forbidden == {}
    assert stage.disk.files == 2
    assert groups.data_version.counter == 6


async def test_a_dead_letter_topic_exists_at_once_and_is_saved_soon(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    kept = [asyncio.Event() for _ in range(2)]
    for number in range(50):
        stage.topics.create_in_send_back(f"%DLQ%g{number}", queue_nums=1, perm=6, sys_flag=0)
    assert stage.topics.select("%DLQ%g7") is not None
    stage.topics.when_kept("%DLQ%g7", kept[0].set)
    assert not kept[0].is_set()
    await kept[0].wait()
    assert stage.again().select("%DLQ%g7") is not None
    assert stage.disk.files == 1
    known = Calls()
    stage.topics.when_kept("%DLQ%g7", known)
    stage.topics.when_kept("TBW102", known)
    assert known.count == 2, "at once"
    stage.disk.is_full = True
    stage.topics.create_in_send_back("%DLQ%full", queue_nums=1, perm=6, sys_flag=0)
    stage.topics.when_kept("%DLQ%full", kept[1].set)
    await kept[1].wait()
    assert warnings_of(caplog)[0].startswith("Topic %DLQ%full is not yet in topics.json: ")


async def test_requests_that_change_offsets_share_a_write(stage: Stage) -> None:
    for queue_id in range(100):
        stage.offsets.commit("g", "T", queue_id, 7)
    await asyncio.gather(*(stage.offsets.written() for _ in range(100)))
    assert stage.disk.files == 1
    await stage.offsets.written()
    assert stage.disk.files == 1


async def test_waiters_are_notified_a_few_in_each_turn(stage: Stage) -> None:
    told: list[int] = []
    turns = [0]
    for number in range(3 * module.WAITERS_A_TURN):
        stage.topics.stage_all([TopicConfig(topic_name=f"T{number}")])
        stage.topics.when_committed(lambda _error: told.append(turns[0]))
    while len(told) < 3 * module.WAITERS_A_TURN:
        await asyncio.sleep(0)
        turns[0] += 1
    assert max(told.count(turn) for turn in set(told)) <= module.WAITERS_A_TURN


async def test_a_waiter_that_fails_does_not_stop_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_error: Exception | None) -> None:
        raise ValueError

    stage.topics.stage_all([TopicConfig(topic_name="T")])
    stage.topics.when_committed(fail)
    await stage.topics.committed()
    assert "no response to a change of topics.json" in caplog.text


def test_only_the_block_of_a_new_entry_is_encoded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.disk.write_at = lambda *_: None  # type: ignore[method-assign]
    topics = stage.topics
    put_topics(topics, *[TopicConfig(topic_name=f"T{number}") for number in range(1_200)])
    encoded: list[str] = []
    member = topics._texts._member

    def count(name: str, entry: TopicConfig) -> bytes:
        encoded.append(name)
        return member(name, entry)

    monkeypatch.setattr(topics._texts, "_member", count)
    put_topics(topics, TopicConfig(topic_name="new"))
    assert len(encoded) < 500
    assert encoded[-1] == "new"
    pieces = list(topics._pieces(topics._snapshot()))
    assert len(pieces) == 6, "head, three blocks of up to 500 entries, and two ends"
