"""The broker's tables, over the files that Apache RocketMQ 5.4.0 wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import ConfigManager
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.model.fastjson import JsonValue, loads
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import WHEEL_TIMER_TOPIC
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.group import SubscriptionGroupWrapper
from roquet.remoting.bodies.topic import TopicConfigSerializeWrapper
from roquet.remoting.codes import RequestCode
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from tests.golden.wire_frames import golden_frames
from tests.table_changes import commit, drop_group, drop_topics, put_groups, put_topics, text_of

MADE_BY_THE_RUN = ("Golden", "AutoCreated", "%RETRY%golden_", "golden_")

CopyStore = Callable[[str], Path]


def config_of(store: Path) -> BrokerConfig:
    return BrokerConfig(store_root=str(store), broker_name="broker-a")


def topics_of(store: Path) -> TopicConfigManager:
    return TopicConfigManager.at(config_of(store), Files(), ManualClock())


def groups_of(store: Path) -> SubscriptionGroupManager:
    return SubscriptionGroupManager.at(config_of(store), Files(), ManualClock())


def offsets_of(store: Path) -> ConsumerOffsetManager:
    return ConsumerOffsetManager.at(config_of(store), Files(), ManualClock())


def without_order(value: JsonValue) -> object:
    """The value with its lists, which are all sets in Java, sorted."""
    if isinstance(value, dict):
        return {key: without_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(str, value))
    return value


# -------------------------------------------------------------------------------- the files


def test_topics_are_written_back_byte_for_byte(
    golden_store: CopyStore, golden_store_name: str
) -> None:
    store = golden_store(golden_store_name)
    text = (store / "config/topics.json").read_text("utf-8")
    topics = topics_of(store)
    assert topics.load() is None
    assert text_of(topics) == text
    assert_written_back(topics, store / "config/topics.json", text)


def test_groups_are_written_back_byte_for_byte(
    golden_store: CopyStore, golden_store_name: str
) -> None:
    store = golden_store(golden_store_name)
    text = (store / "config/subscriptionGroup.json").read_text("utf-8")
    groups = groups_of(store)
    assert groups.load() is None
    assert text_of(groups) == text
    assert_written_back(groups, store / "config/subscriptionGroup.json", text)


def test_offsets_are_written_back(golden_store: CopyStore, golden_store_name: str) -> None:
    store = golden_store(golden_store_name)
    path = store / "config/consumerOffset.json"
    original = loads(path.read_bytes())
    offsets = offsets_of(store)
    assert offsets.load() is None
    # The order of a group's topics is up to Java's hash table, and is never read.
    assert without_order(loads(text_of(offsets))) == without_order(original)
    offsets.persist()
    assert loads(path.read_bytes()) == original, "what did not change is not written"
    offsets.commit("g", "T", 0, 5)
    offsets.persist()
    changed = offsets_of(store)
    changed.load()
    changed.remove_group("g")
    changed.persist()
    assert without_order(loads(path.read_bytes())) == without_order(original)


def assert_written_back(
    table: ConfigManager[TopicConfigSerializeWrapper] | ConfigManager[SubscriptionGroupWrapper],
    path: Path,
    text: str,
) -> None:
    table.persist()
    assert path.read_text("utf-8") == text, "what did not change is not written"
    assert not path.with_name(path.name + ".tmp").exists()


def test_offsets_of_the_golden_groups(golden_store: CopyStore) -> None:
    offsets = offsets_of(golden_store("store-json-clean"))
    offsets.load()
    assert offsets.offsets_of("golden_orderly", "GoldenOrder") == {0: 3, 1: 3, 2: 3, 3: 3}
    assert offsets.query("golden_responder", "GoldenReply", 2) == 1
    assert offsets.query("golden_responder", "GoldenReply", 0) == -1
    assert offsets.topics_of_group("CID_RMQ_SYS_TRANS") == {
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    }
    assert offsets.groups_of_topic("GoldenTopic") == {"golden_push", "golden_lite", "golden_retry"}


# ------------------------------------------------------------- what a broker makes by itself


def test_system_topics_equal_the_real_brokers(
    golden_data: Path, golden_store_name: str, tmp_path: Path
) -> None:
    topics = topics_of(golden_data / golden_store_name)
    topics.load()
    golden = {
        name: topic
        for name, topic in topics.table.items()
        if not name.startswith(MADE_BY_THE_RUN) and name != WHEEL_TIMER_TOPIC
    }
    fresh = topics_of(tmp_path)
    assert fresh.load() is None
    assert fresh.table == golden


def test_system_groups_equal_the_real_brokers(
    golden_data: Path, golden_store_name: str, tmp_path: Path
) -> None:
    groups = groups_of(golden_data / golden_store_name)
    groups.load()
    golden = {
        name: group for name, group in groups.table.items() if not name.startswith(MADE_BY_THE_RUN)
    }
    fresh = groups_of(tmp_path)
    assert fresh.load() is None
    assert fresh.table == golden


def test_a_fresh_file_equals_that_of_a_fresh_broker(
    golden_store: CopyStore, tmp_path: Path
) -> None:
    # The slave of the golden run wrote its files before it had any data of its master.
    slave = golden_store("store-ha-slave")
    for name, make in (("topics", topics_of), ("subscriptionGroup", groups_of)):
        make(tmp_path).persist()
        ours = loads((tmp_path / f"config/{name}.json").read_bytes())
        theirs = loads((slave / f"config/{name}.json").read_bytes())
        assert isinstance(ours, dict)
        assert isinstance(theirs, dict)
        assert list(ours) == list(theirs)
        for value in (ours, theirs):
            version = value["dataVersion"]
            assert isinstance(version, dict)
            version["timestamp"] = 0
        assert ours == theirs


def test_topics_created_by_a_send_and_a_heartbeat_equal_the_real_brokers(
    golden_data: Path, tmp_path: Path
) -> None:
    real = topics_of(golden_data / "store-json-clean")
    real.load()
    ours = topics_of(tmp_path)
    assert ours.create_in_send(
        "AutoCreated", default_topic="TBW102", default_queue_nums=4, sys_flag=0
    ) == real.select("AutoCreated")
    assert ours.create_in_send_back(
        "%RETRY%golden_push", queue_nums=1, perm=6, sys_flag=0
    ) == real.select("%RETRY%golden_push")
    groups = groups_of(golden_data / "store-json-clean")
    groups.load()
    assert groups_of(tmp_path).find("golden_push") == groups.table["golden_push"]


def test_changes_are_counted_as_by_the_real_broker(tmp_path: Path, golden_data: Path) -> None:
    """17 changes of topics and 12 of groups: those of the run, one version each."""
    topics, groups = topics_of(tmp_path), groups_of(tmp_path)
    for name in ("GoldenTopic", "GoldenOrder", "GoldenTx", "GoldenSql", "GoldenReply"):
        put_topics(topics, TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4))
    topics.create_in_send("AutoCreated", default_topic="TBW102", default_queue_nums=4, sys_flag=0)
    commit(topics)
    put_topics(topics, TopicConfig(topic_name="GoldenGone"))
    drop_topics(topics, "GoldenGone")
    real = topics_of(golden_data / "store-json-clean")
    real.load()
    for name in (name for name in real.table if name.startswith("%RETRY%")):
        for _ in range(2):
            topics.create_in_send_back(name, queue_nums=1, perm=6, sys_flag=0)
    assert topics.table == real.table
    assert topics.data_version.counter == real.data_version.counter == 17
    real_groups = groups_of(golden_data / "store-json-clean")
    real_groups.load()
    for name in (name for name in real_groups.table if name.startswith("golden_")):
        groups.find(name)
    put_groups(groups, SubscriptionGroupConfig(group_name="golden_gone"))
    drop_group(groups, "golden_gone")
    assert groups.table == real_groups.table
    assert groups.data_version.counter == real_groups.data_version.counter


# ------------------------------------------------------------------- as others ask for them


def test_tables_returned_by_the_real_broker_contain_ours(tmp_path: Path) -> None:
    topics = [
        decode_body(TopicConfigSerializeWrapper, body).topic_config_table
        for body in answers_to(RequestCode.GET_ALL_TOPIC_CONFIG)
    ]
    groups = [
        decode_body(SubscriptionGroupWrapper, body).subscription_group_table
        for body in answers_to(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    ]
    assert topics
    assert groups
    for answered in topics:
        assert {name: answered.get(name) for name in topics_of(tmp_path).table} == (
            topics_of(tmp_path).table
        )
    for answer in groups:
        assert {name: answer.get(name) for name in groups_of(tmp_path).table} == (
            groups_of(tmp_path).table
        )


def answers_to(code: RequestCode) -> list[bytes]:
    return [
        frame.frame.body
        for frame in golden_frames()
        if frame.is_response and frame.request_code == code and frame.has_body and frame.frame.body
    ]
