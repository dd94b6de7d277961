"""Mappings of static topics: what replaces what, and what is in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.topic_queue_mapping import TopicQueueMappingManager
from roquet.errors import ConfigError, StoreError
from roquet.model.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from roquet.remoting.headers.offset import GetMaxOffsetRequestHeader
from roquet.runtime.clock import ManualClock
from tests.table_changes import commit, drop_mappings, put_mapping
from tests.unit.broker.manager.kit import Calls, FillingDisk

JAVA_FILE = """\
{
	"dataVersion":{
		"counter":1,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"topicQueueMappingInfoMap":{
		"StaticSeen":{
			"bname":"broker-b",
			"currIdMap":{
				
			},
			"dirty":false,
			"epoch":1700000000001,
			"hostedQueues":{
				0:[
					{
						"bname":"broker-a",
						"endOffset":-1,
						"gen":0,
						"logicOffset":0,
						"queueId":0,
						"startOffset":0,
						"timeOfEnd":-1,
						"timeOfStart":-1
					},
					{
						"bname":"broker-b",
						"endOffset":-1,
						"gen":1,
						"logicOffset":10000,
						"queueId":0,
						"startOffset":0,
						"timeOfEnd":-1,
						"timeOfStart":-1
					}
				]
			},
			"scope":"__global__",
			"topic":"StaticSeen",
			"totalQueues":1
		}
	}
}"""  # noqa: W293 - as Apache RocketMQ 5.4.0 writes it
"""What Apache RocketMQ 5.4.0 wrote, with other times."""


class Mappings:
    """A manager on a disk of its own that can be restarted."""

    def __init__(self, root: Path, broker: str = "broker-b") -> None:
        self.config = BrokerConfig(store_root=str(root), broker_name=broker)
        self.path = root / "config" / "topicQueueMapping.json"
        self.disk = FillingDisk()
        self.clock = ManualClock(1_700_000_000_000)
        self.manager = self.again()
        self.calls = Calls()
        self.manager.changed.append(self.calls)

    def again(self) -> TopicQueueMappingManager:
        manager = TopicQueueMappingManager.at(self.config, self.disk, self.clock)
        assert manager.load() is None
        return manager


@pytest.fixture
def at(tmp_path: Path) -> Mappings:
    return Mappings(tmp_path)


def items(*brokers: str) -> list[LogicQueueMappingItem]:
    return [
        LogicQueueMappingItem(broker_name=name, generation=number, logic_offset=number * 10_000)
        for number, name in enumerate(brokers)
    ]


def detail(
    epoch: int = 5, broker: str = "broker-b", **queues: list[LogicQueueMappingItem]
) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(
        broker_name=broker,
        epoch=epoch,
        topic="T",
        total_queues=2,
        hosted_queues={int(name[1:]): each for name, each in queues.items()},
    )


def asked(queue_id: int, *, logical: bool | None = None) -> GetMaxOffsetRequestHeader:
    return GetMaxOffsetRequestHeader(topic="T", queue_id=queue_id, logical=logical)


def test_the_file_is_as_java_writes_it(at: Mappings) -> None:
    mapping = TopicQueueMappingDetail(
        broker_name="broker-b",
        epoch=1_700_000_000_001,
        topic="StaticSeen",
        total_queues=1,
        hosted_queues={0: items("broker-a", "broker-b")},
    )
    put_mapping(at.manager, mapping)
    assert at.path.read_text() == JAVA_FILE
    again = at.again()
    assert again.table == {"StaticSeen": mapping}
    assert again.data_version == at.manager.data_version


def test_without_static_topics_there_is_no_file(at: Mappings) -> None:
    at.manager.persist()
    assert not at.path.exists()


def test_a_later_epoch_replaces_and_keeps_other_queues(at: Mappings) -> None:
    first, second = items("broker-b"), items("broker-b", "broker-a")
    put_mapping(at.manager, detail(5, q0=first, q1=first))
    put_mapping(at.manager, detail(6, q1=second))
    assert at.manager.table["T"] == detail(6, q0=first, q1=second)
    assert at.calls.count == 2


@pytest.mark.parametrize(
    ("new", "fault"),
    [
        (detail(4), "Can't accept data with small epoch 4 < 5"),
        (detail(5), "Cannot accept equal epoch with null data"),
        (
            detail(5, q0=items("broker-b", "broker-a")),
            "The new leader is different but epoch equal",
        ),
        (detail(6, q0=items("broker-c")), "The item of generation 0 is not the known one"),
        (detail(6, "broker-a"), "The mapping is of broker broker-a, not broker-b"),
        (
            detail(6, q0=[LogicQueueMappingItem(start_offset=-1)]),
            "The field is illegal, should not be negative",
        ),
    ],
)
def test_refused_mappings(at: Mappings, new: TopicQueueMappingDetail, fault: str) -> None:
    old = detail(5, q0=items("broker-b"))
    put_mapping(at.manager, old)
    with pytest.raises(ConfigError) as failed:
        put_mapping(at.manager, new)
    assert failed.value.message == fault
    assert at.manager.table["T"] is old


def test_another_scope(at: Mappings) -> None:
    put_mapping(at.manager, detail(5))
    other = detail(6)
    other.scope = "x"
    with pytest.raises(ConfigError, match="unmatched scope x != __global__"):
        put_mapping(at.manager, other)


def test_force_takes_any_epoch(at: Mappings) -> None:
    kept = items("broker-b")
    put_mapping(at.manager, detail(5, q0=kept))
    put_mapping(at.manager, detail(1, q1=items("broker-b")), force=True)
    assert at.manager.table["T"] == detail(1, q0=kept, q1=items("broker-b"))


def test_nothing_changes_on_a_full_disk(at: Mappings) -> None:
    put_mapping(at.manager, detail(5))
    at.disk.is_full = True
    with pytest.raises(StoreError):
        put_mapping(at.manager, detail(6))
    with pytest.raises(StoreError):
        drop_mappings(at.manager, "T")
    assert at.manager.table["T"] == detail(5)
    assert at.calls.count == 1


def test_a_topic_becomes_an_ordinary_one(at: Mappings) -> None:
    put_mapping(at.manager, detail(5))
    drop_mappings(at.manager, "T")
    drop_mappings(at.manager, "T")
    assert at.again().table == {}
    assert at.calls.count == 2


def test_queues_of_requests(at: Mappings) -> None:
    assert at.manager.queue_of(asked(0)) is None
    lost, led = items("broker-b", "broker-a"), items("broker-b")
    put_mapping(at.manager, detail(5, q0=lost, q1=led))
    assert at.manager.queue_of(asked(0, logical=False)) is None
    queues = [at.manager.queue_of(asked(queue_id)) for queue_id in (0, 1, 7, -1)]
    assert [queue and queue.leader for queue in queues] == [None, led[0], None, None]
    any_queue = at.manager.queue_of(asked(-1), any_queue=True)
    assert any_queue is not None
    assert (any_queue.queue_id, any_queue.leader) == (1, led[0])


def test_queues_are_replaced_and_forgotten(at: Mappings) -> None:
    old = detail(5, q0=items("broker-a", "broker-b"), q1=items("broker-b"))
    put_mapping(at.manager, old)
    last = old.hosted_queues[0][1:]
    assert at.manager.stage_queues(old, {0: last, 1: None})
    commit(at.manager)
    assert at.manager.table["T"].hosted_queues == {0: last}
    assert len(old.hosted_queues) == 2
    assert not at.manager.stage_queues(old, {0: None}), "it was replaced"
