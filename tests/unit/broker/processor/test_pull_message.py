"""Pulls: what is returned, what is committed, which ones wait."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.hooks import ConsumeMessageContext, StatsType
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import ResponseCode
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import Port
from roquet.store.config import BrokerRole
from roquet.store.results import GetMessageResult, GetMessageStatus
from tests.table_changes import put_groups, put_topics
from tests.unit.broker.processor.pull_kit import (
    OWN,
    TOPIC,
    WAIT,
    PullBroker,
    bodies,
    outcome,
    pull,
    pull_broker,
    tagged,
)
from tests.unit.store import kit


def status(broker: PullBroker, monkeypatch: pytest.MonkeyPatch, result: GetMessageResult) -> None:
    """Make the store return a given result."""
    monkeypatch.setattr(broker.store, "get_message_in_memory", lambda *_, **__: result)


# -- what is found --------------------------------------------------------------------------


def test_messages_are_returned(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a", b"one"), tagged("b", b"two"), tagged("c", b"three"))
        answer = broker.ask(pull(1))
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        assert answer.remark == "FOUND"
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "3",
            "minOffset": "0",
            "maxOffset": "3",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        assert bodies(answer) == [b"two", b"three"]


def test_as_many_as_requested(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(*(tagged("a", b"%d" % number) for number in range(5)))
        answer = broker.ask(pull(max_messages=2))
        assert answer is not None
        assert bodies(answer) == [b"0", b"1"]
        assert outcome(answer) == (0, "FOUND", 2)


def test_a_greedy_pull_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a"))
        asked: list[int] = []
        get_message = broker.store.get_message_in_memory

        def spy(topic: str, queue_id: int, offset: int, count: int, **_: object) -> object:
            asked.append(count)
            return get_message(topic, queue_id, offset, count)

        monkeypatch.setattr(broker.store, "get_message_in_memory", spy)
        broker.ask(pull(max_messages=2**31 - 1))
        assert asked == [1024]


def test_flags_of_topic_and_group_are_in_the_response(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        put_topics(broker.topics, TopicConfig(topic_name=TOPIC, topic_sys_flag=3))
        put_groups(broker.groups, SubscriptionGroupConfig(group_name="G", group_sys_flag=5))
        answer = broker.ask(pull())
        assert answer is not None
        assert answer.ext_fields is not None
        assert answer.ext_fields["topicSysFlag"] == "3"
        assert answer.ext_fields["groupSysFlag"] == "5"


@pytest.mark.parametrize("flags", [0, OWN])
def test_tags_are_filtered(tmp_path: Path, flags: int) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe("a||c")
        broker.put(*(tagged(tag, tag.encode()) for tag in "abcab"))
        answer = broker.ask(pull(flags=flags, subscription="a||c"))
        assert answer is not None
        assert bodies(answer) == [b"a", b"c", b"a"]
        assert outcome(answer) == (0, "FOUND", 5)
        assert outcome(broker.ask(pull(4, flags=flags, subscription="a||c"))) == (
            20,
            "NO_MATCHED_MESSAGE",
            5,
        )


# -- every status ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "offset", "code"),
    [
        (GetMessageStatus.NO_MATCHED_MESSAGE, 3, 20),
        (GetMessageStatus.MESSAGE_WAS_REMOVING, 3, 20),
        (GetMessageStatus.OFFSET_FOUND_NULL, 3, 19),
        (GetMessageStatus.OFFSET_OVERFLOW_ONE, 3, 19),
        (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 3, 21),
        (GetMessageStatus.OFFSET_TOO_SMALL, 3, 21),
        (GetMessageStatus.OFFSET_RESET, 3, 21),
        (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 3, 21),
        (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 19),
    ],
)
def test_codes_of_statuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: GetMessageStatus,
    offset: int,
    code: int,
) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        status(broker, monkeypatch, GetMessageResult(found, 7, 5, 9))
        answer = broker.ask(pull(offset))
        assert answer is not None
        assert (answer.code, answer.remark) == (code, found.name)
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "7",
            "minOffset": "5",
            "maxOffset": "9",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        assert answer.body == b""


@pytest.mark.parametrize(("offset", "code"), [(0, 19), (4, 21)])
def test_a_queue_that_was_never_written_is_an_empty_one(
    tmp_path: Path, offset: int, code: int
) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        assert outcome(broker.ask(pull(offset))) == (code, "NO_MESSAGE_IN_QUEUE", 0)


def test_offsets_beyond_either_end(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a"), tagged("b"))
        assert outcome(broker.ask(pull(2))) == (19, "OFFSET_OVERFLOW_ONE", 2)
        assert outcome(broker.ask(pull(3))) == (21, "OFFSET_OVERFLOW_BADLY", 2)
        assert outcome(broker.ask(pull(-1))) == (21, "OFFSET_TOO_SMALL", 0)


def test_a_moved_offset_is_logged_once_in_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pull_broker(tmp_path) as broker, caplog.at_level(logging.WARNING):
        broker.subscribe()
        for _ in range(3):
            broker.ask(pull(7))
        broker.clock.advance(1_000)
        broker.ask(pull(8))
        first, second = [record.getMessage() for record in caplog.records]
        assert first == (
            "PULL_OFFSET_MOVED: NO_MATCHED_LOGIC_QUEUE, topic=T, queueId=0, groupId=G, "
            "requestOffset=7, newOffset=0, minOffset=0, maxOffset=0, consumer=127.0.0.1:5000"
        )
        assert "requestOffset=8" in second
        assert second.endswith("(2 more like this)")


# -- which broker next ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slave_read", "is_slow", "suggested"),
    [(False, False, "0"), (False, True, "0"), (True, False, "6"), (True, True, "4")],
)
def test_which_broker_is_suggested(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    slave_read: bool,
    is_slow: bool,
    suggested: str,
) -> None:
    with pull_broker(tmp_path, BrokerConfig(slave_read=slave_read)) as broker:
        broker.subscribe()
        put_groups(
            broker.groups,
            SubscriptionGroupConfig(
                group_name="G", broker_id=6, which_broker_when_consume_slowly=4
            ),
        )
        result = GetMessageResult(
            GetMessageStatus.NO_MATCHED_MESSAGE, suggest_pulling_from_slave=is_slow
        )
        status(broker, monkeypatch, result)
        answer = broker.ask(pull())
        assert answer is not None
        assert answer.ext_fields is not None
        assert answer.ext_fields["suggestWhichBrokerId"] == suggested


@pytest.mark.parametrize(
    ("min_broker_id", "is_slow", "expected"),
    [(0, False, ("0", 20)), (0, True, ("4", 19)), (1, False, ("6", 19))],
)
def test_a_slave_sends_consumers_to_its_master(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    min_broker_id: int,
    is_slow: bool,
    expected: tuple[str, int],
) -> None:
    config = BrokerConfig(slave_read=True, broker_id=1)
    store_config = kit.config(broker_role=BrokerRole.SLAVE)
    with pull_broker(tmp_path, config, store_config=store_config) as broker:
        broker.subscribe()
        put_groups(
            broker.groups,
            SubscriptionGroupConfig(
                group_name="G", broker_id=6, which_broker_when_consume_slowly=4
            ),
        )
        broker.processor.response.min_broker_id = min_broker_id
        result = GetMessageResult(
            GetMessageStatus.OFFSET_OVERFLOW_ONE, suggest_pulling_from_slave=is_slow
        )
        status(broker, monkeypatch, result)
        answer = broker.ask(pull())
        assert answer is not None
        assert answer.ext_fields is not None
        assert (answer.ext_fields["suggestWhichBrokerId"], answer.code) == expected


@pytest.mark.parametrize(
    ("offset_check_in_slave", "expected"), [(False, ("6", 20)), (True, ("4", 21))]
)
def test_a_slave_leaves_offsets_to_its_master(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    offset_check_in_slave: bool,
    expected: tuple[str, int],
) -> None:
    config = BrokerConfig(slave_read=True, broker_id=1)
    store_config = kit.config(
        broker_role=BrokerRole.SLAVE, offset_check_in_slave=offset_check_in_slave
    )
    with pull_broker(tmp_path, config, store_config=store_config) as broker:
        broker.subscribe()
        put_groups(
            broker.groups,
            SubscriptionGroupConfig(
                group_name="G", broker_id=6, which_broker_when_consume_slowly=4
            ),
        )
        result = GetMessageResult(
            GetMessageStatus.OFFSET_OVERFLOW_BADLY, suggest_pulling_from_slave=True
        )
        status(broker, monkeypatch, result)
        answer = broker.ask(pull())
        assert answer is not None
        assert answer.ext_fields is not None
        assert (answer.ext_fields["suggestWhichBrokerId"], answer.code) == expected


# -- offsets --------------------------------------------------------------------------------


def test_a_carried_offset_is_committed_if_the_pull_says_so(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a"), tagged("b"))
        broker.ask(pull(commit_offset=2))
        assert broker.offsets.query("G", TOPIC, 0) == -1
        assert broker.offsets.query_pull("G", TOPIC, 0) == 2
        broker.ask(pull(flags=1, commit_offset=1))
        assert broker.offsets.query("G", TOPIC, 0) == 1


def test_a_refused_pull_commits_nothing(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.ask(pull(flags=1, commit_offset=1))
        assert broker.offsets.query("G", TOPIC, 0) == -1
        assert broker.offsets.query_pull("G", TOPIC, 0) == -1


def test_a_held_pull_commits_on_arrival_only(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a"))
        assert broker.ask(pull(1, flags=WAIT | 1, commit_offset=1)) is None
        assert broker.offsets.query("G", TOPIC, 0) == 1
        broker.offsets.commit("G", TOPIC, 0, 9)
        broker.put(tagged("b"))
        assert len(broker.connection.answers) == 1
        assert broker.offsets.query("G", TOPIC, 0) == 9
        assert broker.offsets.query_pull("G", TOPIC, 0) == 2


@pytest.mark.parametrize("is_used", [True, False])
def test_a_reset_offset_is_delivered_once(tmp_path: Path, *, is_used: bool) -> None:
    with pull_broker(tmp_path, BrokerConfig(use_server_side_reset_offset=is_used)) as broker:
        broker.subscribe()
        broker.put(tagged("a"), tagged("b"))
        broker.offsets.assign_reset_offset(TOPIC, "G", 0, 1)
        first = broker.ask(pull(2, flags=WAIT))
        if is_used:
            assert outcome(first) == (21, "OFFSET_RESET", 1)
            assert first is not None
            assert first.ext_fields is not None
            assert (first.ext_fields["minOffset"], first.ext_fields["maxOffset"]) == ("0", "2")
        else:
            assert first is None
        assert not broker.offsets.has_offset_reset(TOPIC, "G", 0)
        assert outcome(broker.ask(pull())) == (0, "FOUND", 2)


def test_the_pull_that_gets_a_reset_commits_nothing(tmp_path: Path) -> None:
    """Its client committed before it knew of the reset, and may die before it commits again."""
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.put(tagged("a"), tagged("b"))
        broker.offsets.commit("G", TOPIC, 0, 2)
        broker.offsets.assign_reset_offset(TOPIC, "G", 0, 0)
        assert outcome(broker.ask(pull(2, flags=WAIT | 1, commit_offset=2))) == (
            21,
            "OFFSET_RESET",
            0,
        )
        assert broker.offsets.query("G", TOPIC, 0) == 0


def test_a_reset_reaches_held_pulls(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.subscribe()
        broker.subscribe(group="H")
        broker.put(tagged("a"))
        assert broker.ask(pull(1, flags=WAIT)) is None
        assert broker.ask(pull(1, flags=WAIT, group="H")) is None
        assert broker.ask(pull(flags=WAIT, queue_id=1)) is None
        broker.offsets.assign_reset_offset(TOPIC, "G", 0, 0)
        (answer,) = broker.connection.answers
        assert outcome(answer) == (21, "OFFSET_RESET", 0)
        assert len(broker.hold) == 2
        assert not broker.offsets.has_offset_reset(TOPIC, "G", 0)


# -- hooks ----------------------------------------------------------------------------------


class Hook:
    """Records pulls; refuses on demand."""

    def __init__(self) -> None:
        self.seen: list[ConsumeMessageContext] = []
        self.refuses = False

    def before(self, context: ConsumeMessageContext) -> None:
        self.seen.append(context)
        if self.refuses:
            raise RequestRefused("not you", response_code=ResponseCode.NO_PERMISSION)

    def after(self, context: ConsumeMessageContext) -> None:
        raise AssertionError(context)


def test_hooks_see_delivered_messages(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        hook = Hook()
        broker.processor.consume_hooks.append(hook)
        broker.subscribe()
        broker.put(tagged("a", b"one"))
        answer = broker.ask(pull())
        assert answer is not None
        broker.ask(pull(1, flags=WAIT))
        broker.ask(pull(5))
        assert [(each.message_count, each.stats_type) for each in hook.seen] == [
            (1, StatsType.RCV_SUCCESS),
            (0, None),
            (0, StatsType.RCV_EPOLLS),
        ]
        first = hook.seen[0]
        assert (first.consumer_group, first.topic, first.queue_id) == ("G", TOPIC, 0)
        assert first.message_bytes == len(answer.body)
        assert first.client_host == "127.0.0.1:5000"
        assert first.ext_fields["consumerGroup"] == "G"


def test_a_hook_may_refuse(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        hook = Hook()
        hook.refuses = True
        broker.processor.consume_hooks.append(hook)
        broker.subscribe()
        broker.put(tagged("a", b"one"))
        answer = broker.ask(pull(flags=1, commit_offset=1))
        assert answer is not None
        assert (answer.code, answer.remark, answer.body) == (16, "not you", b"")
        assert broker.offsets.query("G", TOPIC, 0) == -1


def test_pulls_are_on_the_main_port_only(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        assert sorted(broker.registry.table(Port.MAIN)) == [11, 12, 33, 361]
        assert sorted(broker.registry.table(Port.FAST)) == [12, 33]
