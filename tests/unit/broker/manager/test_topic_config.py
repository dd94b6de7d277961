"""Topics: who creates them, how they change, and what is in the file when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import topic_config as module
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.errors import ConfigError, StoreError
from roquet.model.fastjson import dumps, loads
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.topic import TopicConfigAndQueueMapping
from roquet.runtime.clock import ManualClock
from tests.table_changes import commit, drop_topics, put_topics, text_of
from tests.unit.broker.manager.kit import Calls, FillingDisk, warnings_of


class Topics:
    """A manager on a disk of its own that can be restarted."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.config = BrokerConfig(
            **{"store_root": str(root), "broker_name": "broker-a", **settings}  # type: ignore[arg-type]
        )
        self.path = root / "config" / "topics.json"
        self.disk = FillingDisk()
        self.clock = ManualClock()
        self.manager = self.again()
        self.calls = Calls()
        self.manager.changed.append(self.calls)

    def again(self) -> TopicConfigManager:
        manager = TopicConfigManager.at(self.config, self.disk, self.clock)
        assert manager.load() is None
        return manager

    def send(
        self, topic: str, *, default: str = "TBW102", queues: int = 4, sys_flag: int = 0
    ) -> TopicConfig | None:
        made = self.manager.create_in_send(
            topic, default_topic=default, default_queue_nums=queues, sys_flag=sys_flag
        )
        commit(self.manager)
        return made

    def send_back(self, topic: str, *, queues: int = 1, order: bool = False) -> TopicConfig | None:
        return self.manager.create_in_send_back(
            topic, queue_nums=queues, perm=6, sys_flag=0, order=order
        )


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    return Topics(tmp_path)


def order(manager: TopicConfigManager, *names: str) -> None:
    manager.stage_order_config(dict.fromkeys(names, "broker-a:4"))
    commit(manager)


def counter(manager: TopicConfigManager) -> int:
    return manager.data_version.counter


# ------------------------------------------------------------------------------ system topics


def test_names_of_this_broker_are_system_topics(topics: Topics) -> None:
    manager = topics.manager
    for topic in ("DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC", "TBW102"):
        assert topic in manager.table
        assert manager.is_system(topic)
    assert manager.is_system("rmq_sys_anything")
    assert manager.is_system("TRANS_CHECK_MAX_TIME_TOPIC")
    assert not manager.is_system("T")
    assert not manager.is_system("broker-b")


def test_settings_decide_on_system_topics(tmp_path: Path) -> None:
    manager = Topics(
        tmp_path,
        cluster_name="C",
        auto_create_topic=False,
        cluster_topic=False,
        broker_topic=False,
        trace_topic=True,
        trace_topic_name="Traces",
        revive_queue_nums=3,
    ).manager
    assert manager.select("TBW102") is None
    assert [
        (name, topic.perm, topic.read_queue_nums, topic.write_queue_nums)
        for name in ("C", "broker-a", "Traces", "rmq_sys_REVIVE_LOG_C")
        if (topic := manager.select(name)) is not None
    ] == [
        ("C", 1, 16, 16),
        ("broker-a", 1, 1, 1),
        ("Traces", 6, 1, 1),
        ("rmq_sys_REVIVE_LOG_C", 6, 3, 3),
    ]
    assert manager.is_system("Traces")


def test_senders_create_the_trace_topic_if_the_broker_has_none(topics: Topics) -> None:
    manager = topics.manager
    assert manager.select("RMQ_SYS_TRACE_TOPIC") is None
    made = manager.create_in_send(
        "RMQ_SYS_TRACE_TOPIC", default_topic="TBW102", default_queue_nums=4, sys_flag=0
    )
    assert made is not None
    assert (made.write_queue_nums, made.perm) == (4, 6)


def test_each_delay_level_has_a_queue(tmp_path: Path) -> None:
    config = BrokerConfig(store_root=str(tmp_path))
    manager = TopicConfigManager.at(config, FillingDisk(), ManualClock(), delay_level_count=20)
    schedule = manager.select("SCHEDULE_TOPIC_XXXX")
    assert schedule is not None
    assert (schedule.read_queue_nums, schedule.write_queue_nums) == (20, 20)


def test_system_topics_are_written_by_the_first_persist(topics: Topics) -> None:
    assert not topics.path.exists()
    topics.manager.persist()
    assert set(_table(topics.path)) == set(topics.manager.table)
    assert counter(topics.manager) == 0
    writes = topics.disk.writes
    topics.manager.persist()
    assert topics.disk.writes == writes


def test_the_file_wins_over_the_settings(topics: Topics) -> None:
    benchmark = TopicConfig(topic_name="BenchmarkTest", read_queue_nums=2, write_queue_nums=2)
    put_topics(topics.manager, benchmark)
    assert topics.again().select("BenchmarkTest") == benchmark


# ---------------------------------------------------------------------- created by a send


def test_a_send_creates_a_topic_like_the_default_topic(topics: Topics) -> None:
    made = topics.send("T", queues=4, sys_flag=1)
    assert made == TopicConfig(
        topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6, topic_sys_flag=1
    )
    assert topics.manager.select("T") is made
    assert topics.send("T", queues=2) is made
    assert topics.calls.count == 1
    assert counter(topics.manager) == 1
    assert topics.again().select("T") == made


@pytest.mark.parametrize(("asked", "given"), [(4, 4), (8, 8), (100, 8), (0, 0), (-3, 0)])
def test_a_sender_gets_no_more_queues_than_the_default_topic_has(
    topics: Topics, asked: int, given: int
) -> None:
    made = topics.send("T", queues=asked)
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums) == (given, given)


def test_permissions_and_filter_type_are_inherited(topics: Topics) -> None:
    put_topics(
        topics.manager,
        TopicConfig(topic_name="Model", perm=5, write_queue_nums=3, topic_filter_type="MULTI_TAG"),
    )
    made = topics.send("T", default="Model", queues=9)
    assert made == TopicConfig(
        topic_name="T",
        perm=4,
        read_queue_nums=3,
        write_queue_nums=3,
        topic_filter_type="MULTI_TAG",
    )


@pytest.mark.parametrize("default", ["Unknown", "BenchmarkTest"])
def test_no_topic_from_an_unknown_or_uninheritable_default(topics: Topics, default: str) -> None:
    assert topics.send("T", default=default) is None
    assert topics.manager.select("T") is None
    assert topics.calls.count == 0


def test_no_topic_where_senders_may_not_create_any(tmp_path: Path) -> None:
    Topics(tmp_path).manager.persist()
    closed = Topics(tmp_path, auto_create_topic=False)
    assert closed.manager.select("TBW102") is not None, "left by the run before"
    assert closed.send("T") is None
    assert closed.send("T", default="DefaultCluster") is not None, "as upstream"


@pytest.mark.parametrize("topic", ["", "a/b", "..", "a b", "x" * 128])
def test_no_topic_with_a_bad_name(topics: Topics, topic: str) -> None:
    assert topics.send(topic) is None
    assert topics.send_back(topic) is None
    assert topic not in topics.manager.table


def test_outsiders_cannot_create_unlimited_topics(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", len(topics.manager.table) + 1)
    assert topics.send("A") is not None
    assert topics.send("B") is None
    assert topics.send_back("%RETRY%g") is None
    assert warnings_of(caplog) == [
        f"Topic 'B' was not created: there are {module.TOPICS_MAX} topics"
    ]
    assert topics.send("A") is not None
    put_topics(topics.manager, TopicConfig(topic_name="ByAdmin"))
    assert topics.manager.select("ByAdmin") is not None


def test_a_topic_that_cannot_be_written_is_not_created(topics: Topics) -> None:
    topics.disk.is_full = True
    with pytest.raises(StoreError):
        topics.send("T")
    assert topics.manager.select("T") is None
    assert counter(topics.manager) == 0
    assert topics.calls.count == 0
    topics.disk.is_full = False
    assert topics.send("T") is not None
    assert counter(topics.again()) == 1


# -------------------------------------------------------------------- retries, dead letters


def test_dead_letters_are_in_the_file_at_once(topics: Topics) -> None:
    made = topics.send_back("%DLQ%g", queues=2)
    assert made == TopicConfig(topic_name="%DLQ%g", read_queue_nums=2, write_queue_nums=2, perm=6)
    assert topics.again().select("%DLQ%g") == made
    assert topics.calls.count == 1


def test_retries_wait_for_the_next_persist(topics: Topics) -> None:
    topics.manager.persist()
    writes = topics.disk.writes
    made = topics.send_back("%RETRY%g")
    assert topics.disk.writes == writes
    assert topics.calls.count == 1
    assert counter(topics.manager) == 1
    topics.manager.persist()
    assert topics.again().select("%RETRY%g") == made


def test_a_full_disk_does_not_prevent_consumers_from_getting_their_topics(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topics.disk.is_full = True
    assert topics.send_back("%DLQ%g") is not None
    assert topics.send_back("%DLQ%h") is not None
    assert topics.calls.count == 2
    (message,) = warnings_of(caplog)
    assert message.startswith("Topic %DLQ%g is not yet in topics.json: "), "and not for each"
    with pytest.raises(StoreError):
        topics.manager.persist()
    topics.disk.is_full = False
    topics.manager.persist()
    assert topics.again().select("%DLQ%g") is not None


def test_a_retry_topic_is_ordered_if_its_group_is(topics: Topics) -> None:
    topics.send_back("%RETRY%g")
    assert topics.send_back("%RETRY%g") is topics.manager.select("%RETRY%g")
    assert counter(topics.manager) == 1
    ordered = topics.send_back("%RETRY%g", queues=7, order=True)
    assert ordered is not None
    assert (ordered.order, ordered.read_queue_nums) == (True, 1)
    assert topics.manager.is_order_topic("%RETRY%g")
    assert counter(topics.manager) == 2
    topics.send_back("%RETRY%g", order=False)
    assert not topics.manager.is_order_topic("%RETRY%g")


def test_attributes_survive_a_change_of_order(topics: Topics) -> None:
    put_topics(topics.manager, TopicConfig(topic_name="T", attributes={"+message.type": "FIFO"}))
    changed = topics.send_back("T", order=True)
    assert changed is not None
    assert changed.attributes == {"message.type": "FIFO"}


# ------------------------------------------------------------------------- by administrators


def test_a_topic_is_created_changed_and_deleted(topics: Topics) -> None:
    manager = topics.manager
    put_topics(manager, TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    topics.clock.advance(5)
    put_topics(
        manager,
        TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=2, perm=4, order=True),
    )
    assert manager.select("T") == TopicConfig(
        topic_name="T", read_queue_nums=8, write_queue_nums=2, perm=4, order=True
    )
    assert (counter(manager), manager.data_version.timestamp_ms) == (2, topics.clock.now_ms())
    assert topics.again().table == manager.table
    assert topics.again().data_version == manager.data_version
    assert topics.again().begin_persist() is None
    drop_topics(manager, "T")
    assert manager.select("T") is None
    assert (counter(manager), topics.calls.count) == (3, 3)
    assert topics.again().select("T") is None
    drop_topics(manager, "T")
    assert (counter(manager), topics.calls.count) == (3, 3)


def test_attributes_are_changed_by_sign(topics: Topics) -> None:
    manager = topics.manager
    put_topics(manager, TopicConfig(topic_name="T", attributes={"+message.type": "FIFO"}))
    put_topics(manager, TopicConfig(topic_name="T", attributes={"+reserve.time": "5"}))
    topic = topics.again().select("T")
    assert topic is not None
    assert topic.attributes == {"message.type": "FIFO", "reserve.time": "5"}
    put_topics(manager, TopicConfig(topic_name="T", attributes={"-message.type": ""}))
    topic = manager.select("T")
    assert topic is not None
    assert topic.attributes == {"reserve.time": "5"}


def test_of_several_topics_all_or_none_are_accepted(topics: Topics) -> None:
    manager = topics.manager
    good, bad = TopicConfig(topic_name="A"), TopicConfig(topic_name="B", attributes={"+x": "y"})
    before = msgspec.structs.replace(manager.data_version)
    with pytest.raises(ConfigError, match="unsupported key: x"):
        put_topics(manager, good, bad)
    assert manager.select("A") is None
    assert manager.data_version == before
    put_topics(manager, good, TopicConfig(topic_name="C"))
    assert counter(manager) == 1
    assert {"A", "C"} < set(topics.again().table)
    put_topics(manager)
    assert counter(manager) == 1


def test_a_change_that_cannot_be_written_is_not_applied(topics: Topics) -> None:
    manager = topics.manager
    put_topics(manager, TopicConfig(topic_name="T", perm=6))
    before, text = dict(manager.table), topics.path.read_text("utf-8")
    topics.disk.is_full = True
    changes: list[Callable[[], None]] = [
        lambda: put_topics(manager, TopicConfig(topic_name="T", perm=4)),
        lambda: drop_topics(manager, "T"),
        lambda: order(manager, "T"),
    ]
    for change in changes:
        with pytest.raises(StoreError):
            change()
        assert manager.table == before
        assert counter(manager) == 1
    assert topics.calls.count == 1
    topics.disk.is_full = False
    manager.persist()
    assert topics.path.read_text("utf-8") == text


def test_mappings_of_static_topics_are_not_kept_here(topics: Topics) -> None:
    put_topics(topics.manager, TopicConfigAndQueueMapping(topic_name="T", perm=4))
    assert type(topics.manager.select("T")) is TopicConfig
    assert topics.again().select("T") == TopicConfig(topic_name="T", perm=4)


def test_topics_become_ordered_by_the_name_server(topics: Topics) -> None:
    manager = topics.manager
    put_topics(manager, *(TopicConfig(topic_name=name) for name in ("A", "B", "C")))
    order(manager, "A", "B", "Unknown")
    assert [manager.is_order_topic(topic) for topic in ("A", "B", "C", "Unknown")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert (counter(manager), topics.calls.count) == (2, 2)
    order(manager, "A")
    assert manager.is_order_topic("B"), "none becomes unordered"
    assert (counter(manager), topics.calls.count) == (2, 2)
    assert topics.again().is_order_topic("A")


# ---------------------------------------------------------------------------------- the file


def test_only_changes_are_rewritten(topics: Topics) -> None:
    manager = topics.manager
    for number in range(50):
        put_topics(manager, TopicConfig(topic_name=f"T{number}", perm=6))
        put_topics(manager, TopicConfig(topic_name=f"T{number // 2}", perm=4))
        drop_topics(manager, f"T{number // 3}")
        assert topics.path.read_text("utf-8") == text_of(manager)
        again = topics.again()
        assert again.table == manager.table
        assert text_of(again) == text_of(manager)


def test_names_of_any_characters_are_written_as_fastjson_writes_them(topics: Topics) -> None:
    names = ['a"b', "two\nlines", "\ttab", "back\\slash", "主题", "\x01"]
    put_topics(
        topics.manager, *[TopicConfig(topic_name=name, topic_filter_type=name) for name in names]
    )
    text = text_of(topics.manager)
    version, table = topics.manager.data_version, topics.manager.table
    whole = {
        "dataVersion": msgspec.to_builtins(version),
        "topicConfigTable": msgspec.to_builtins(table),
    }
    assert text == dumps(whole, pretty=True)
    assert topics.again().table == table


def test_a_damaged_file_is_reported_and_repaired(topics: Topics) -> None:
    manager = topics.manager
    put_topics(manager, TopicConfig(topic_name="A"))
    put_topics(manager, TopicConfig(topic_name="B"))
    topics.path.write_text('{"topicConfigTable":{"A"', "utf-8")
    again = TopicConfigManager.at(topics.config, topics.disk, topics.clock)
    problem = again.load()
    assert problem is not None
    assert problem.code == "config_backup_used"
    assert again.select("A") is not None
    again.persist()
    assert topics.again().table == again.table


@pytest.mark.parametrize(
    "text",
    [
        '{"dataVersion":{"counter":7},"topicConfigTable":{"T":{"perm":4,"topicName":"T"}}}',
        '{"dataVersion":{"counter":7},"topicConfigTable":{"T":{"perm":4,"attributes":null}}}',
        '{"dataVersion":{"counter":7,},"topicConfigTable":{"T":{"perm":"4","later":{1:2}}}}',
    ],
)
def test_texts_of_other_versions_are_read(topics: Topics, text: str) -> None:
    topics.path.parent.mkdir()
    topics.path.write_text(text, "utf-8")
    manager = topics.again()
    assert manager.select("T") == TopicConfig(topic_name="T", perm=4)
    assert counter(manager) == 7
    assert manager.select("TBW102") is not None
    manager.persist()
    assert "TBW102" in _table(topics.path), "what is new since then is written"


@pytest.mark.parametrize("text", ["[]", '{"topicConfigTable":3}', '{"topicConfigTable":{"T":[]}}'])
def test_texts_of_other_files_are_refused(topics: Topics, text: str) -> None:
    topics.path.parent.mkdir()
    topics.path.write_text(text, "utf-8")
    manager = TopicConfigManager.at(topics.config, topics.disk, topics.clock)
    with pytest.raises(ConfigError) as raised:
        manager.load()
    assert raised.value.code == "config_unusable"
    assert topics.path.read_text("utf-8") == text


def test_an_older_snapshot_never_replaces_a_newer_one(topics: Topics) -> None:
    manager = topics.manager
    topics.send_back("%RETRY%old")
    job = manager.begin_persist()
    assert job is not None
    put_topics(manager, TopicConfig(topic_name="New"))
    writes = topics.disk.writes
    job()
    assert topics.disk.writes == writes
    assert {"%RETRY%old", "New"} < set(topics.again().table)


def test_a_job_that_never_ran_loses_nothing(topics: Topics) -> None:
    topics.send_back("%RETRY%g")
    forgotten = topics.manager.begin_persist()
    assert forgotten is not None
    topics.manager.persist()
    assert topics.again().select("%RETRY%g") is not None
    writes = topics.disk.writes
    forgotten()
    assert topics.manager.begin_persist() is None
    assert topics.disk.writes == writes


def test_a_job_that_failed_is_retried(topics: Topics) -> None:
    topics.send_back("%RETRY%g")
    job = topics.manager.begin_persist()
    assert job is not None
    topics.disk.is_full = True
    with pytest.raises(StoreError):
        job()
    topics.disk.is_full = False
    topics.manager.persist()
    assert topics.again().select("%RETRY%g") is not None


def _table(path: Path) -> dict[str, object]:
    value = loads(path.read_bytes())
    assert isinstance(value, dict)
    table = value["topicConfigTable"]
    assert isinstance(table, dict)
    return {str(name): topic for name, topic in table.items()}
