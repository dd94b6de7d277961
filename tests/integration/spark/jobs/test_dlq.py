"""Dead letters of stores and of a broker, and their way back."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.client import (
    ClientOptions,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from roquet.errors import NotFound, SparkOptionError
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.spark.broker.outgoing import ROW_ID
from roquet.spark.jobs.dlq import list_letters, replay_letters, show_letters
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.store_config import read_retries
from roquet.testing.background import BackgroundBroker, background_broker
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.log.kit import write_store
from tests.unit.store.kit import NOW_MS, message

GOLDEN = Path(__file__).parents[3] / "golden" / "data" / "store-json-clean"


def letter(group: str, number: int, tries: int, **more: str) -> BrokerMessage:
    named = {
        "UNIQ_KEY": f"{number:032X}",
        "KEYS": f"key-{number} all",
        "TAGS": "paid",
        "colour": "red",
        "RETRY_TOPIC": "Orders",
        "ORIGIN_MESSAGE_ID": f"origin-{number}",
        **more,
    }
    made = message(
        f"body {number}".encode(), topic=f"%DLQ%{group}", properties=encode_properties(named)
    )
    return made._replace(reconsume_times=tries, flag=7)


def trace(number: int, code: int) -> BrokerMessage:
    message_id = f"{number:032X}"
    text = f"SubAfter\x01request\x01{message_id}\x0112\x01false\x01key\x01{code}\x02"
    properties = encode_properties({"KEYS": f"{message_id} key"})
    return message(text.encode(), topic="RMQ_SYS_TRACE_TOPIC", properties=properties)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Letters of two groups a second apart, with other messages between."""
    root = tmp_path / "letters"
    made = [
        letter("billing", 1, 17),
        message(topic="Orders"),
        letter("billing", 2, 1),
        trace(2, 4),
        trace(2, 2),
        letter("shipping", 3, 4, MAX_RECONSUME_TIMES="3"),
        letter("shipping", 4, 17, RETRY_TOPIC=""),
    ]
    write_store(root, made, step_ms=1_000)
    return root


def test_letters_are_summed_up_by_group_topic_and_reason(store: Path) -> None:
    report = list_letters(HERE, str(store), letters_shown=2, letters_max=1)
    assert report.numbers == {"groups": 2, "letters": 4}
    rows = [row[:5] for row in report.table("Groups").rows]
    assert rows == [
        ["billing", "Orders", "given up", 1, "1"],
        ["billing", "Orders", "tries used up", 1, "17"],
        ["shipping", None, "tries used up", 1, "17"],
        ["shipping", "Orders", "tries used up", 1, "4"],
    ]
    newest, other = report.table("Letters").rows
    assert newest[:5] == ["shipping", f"{4:032X}", None, 17, "tries used up"]
    assert other[3:] == [
        *(4, "tries used up", "2023-11-14T22:13:19.995Z", "2023-11-14T22:13:25.000Z"),
        *("key-3 all", "paid"),
    ]
    assert [(each.kind, each.where) for each in report.findings] == [
        ("too many", "billing"),
        ("too many", "shipping"),
    ]


def test_groups_times_and_the_groups_own_retries_count(store: Path) -> None:
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "subscriptionGroup.json").write_text(
        '{"subscriptionGroupTable":{"billing":{"retryMaxTimes":0},"broken":1}}'
    )
    assert read_retries(store) == {"billing": 0}
    report = list_letters(HERE, str(store), groups=["billing"])
    ((_, _, reason, count, tries, *_),) = report.table("Groups").rows
    assert (reason, count, tries) == ("tries used up", 2, "1 to 17")
    report = list_letters(HERE, str(store), wanted=Wanted(from_ms=NOW_MS + 1_000))
    assert report.numbers["letters"] == 3
    report = list_letters(HERE, str(store), wanted=Wanted(topics=["Orders"]))
    assert report.numbers["letters"] == 3
    assert list_letters(HERE, str(store), wanted=Wanted(topics=["No"])).numbers["letters"] == 0
    assert list_letters(HERE, str(GOLDEN)).numbers == {"groups": 0, "letters": 0}
    assert read_retries(GOLDEN)["SELF_TEST_C_GROUP"] == 16


def test_a_letter_is_shown_in_full_with_the_last_trace(store: Path) -> None:
    report = show_letters(HERE, str(store), ["key-2"], with_traces=True)
    (table,) = report.tables
    assert table.title == f"billing: {2:032X}"
    told = {str(row[0]): row[1] for row in table.rows}
    assert told["reason"] == "given up"
    assert told["handler"] == "exception after 12 ms"
    assert told["original id"] == "origin-2"
    assert told["property colour"] == "red"
    assert told["body"] == "body 2"
    listed = list_letters(HERE, str(store), groups=["billing"], with_traces=True)
    assert [row[-1] for row in listed.table("Letters").rows] == ["exception after 12 ms", None]
    with pytest.raises(NotFound, match="key-9"):
        show_letters(HERE, str(store), ["key-9"])


@pytest.fixture(scope="module")
def broker() -> Iterator[BackgroundBroker]:
    with background_broker() as running:
        yield running


def options(broker: BackgroundBroker) -> ClientOptions:
    return ClientOptions(namesrv=broker.namesrv)


def test_letters_of_a_store_go_back_with_ids_that_stay(
    store: Path, broker: BackgroundBroker
) -> None:
    broker.create_topic("Orders", queues=2)
    to = options(broker)
    counted = replay_letters(HERE, str(store), to, is_dry_run=True)
    assert counted.numbers["letters"] == 4
    assert broker.messages("Orders") == []
    for _ in range(2):
        report = replay_letters(HERE, str(store), to, rate=1_000)
        assert report.numbers == {"messages": 3, "refused": 1}
        assert report.table("Sent").rows == [
            ["%DLQ%billing", "Orders", 2],
            ["%DLQ%shipping", "Orders", 1],
        ]
        assert [each.kind for each in report.findings] == ["refused"]
    found = broker.messages("Orders")
    assert len(found) == 6
    ids = {each.properties[ROW_ID]: each.body for each in found}
    assert sorted(ids.values()) == [b"body 1", b"body 2", b"body 3"]
    assert all(each.startswith("dlq/%DLQ%") for each in ids)
    first = min(found, key=lambda each: each.body)
    assert (first.tags, first.keys, first.flag) == ("paid", ["key-1", "all"], 7)
    assert first.properties["colour"] == "red"
    assert "RETRY_TOPIC" not in first.properties
    assert "ORIGIN_MESSAGE_ID" not in first.properties


def test_chosen_letters_go_to_another_topic(store: Path, broker: BackgroundBroker) -> None:
    broker.create_topic("Again")
    names = [f"{2:032X}", "key-4"]
    report = replay_letters(
        HERE, str(store), options(broker), names=names, to_topic="Again", name="second"
    )
    assert report.numbers == {"messages": 2}
    found = broker.messages("Again")
    assert sorted(each.body for each in found) == [b"body 2", b"body 4"]
    assert all(each.properties[ROW_ID].startswith("second/") for each in found)
    with pytest.raises(SparkOptionError, match="not to both"):
        replay_letters(HERE, str(store), options(broker), to_topic="Again", to_group=True)
    with pytest.raises(SparkOptionError, match="sends nothing"):
        replay_letters(HERE, str(store), options(broker), rate=0)


def test_a_group_gets_its_letters_back_through_the_broker(broker: BackgroundBroker) -> None:
    broker.create_topic("Poison", queues=1)
    to = options(broker)
    assert "careful" not in str(list_letters(HERE, to).tables)

    async def consume(answer: ConsumeResult) -> list[ReceivedMessage]:
        received: list[ReceivedMessage] = []
        done = asyncio.Event()

        async def handler(message: ReceivedMessage) -> ConsumeResult:
            received.append(message)
            done.set()
            return answer

        consumer = PushConsumer(
            broker.namesrv,
            group="careful",
            handler=handler,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("Poison")
        async with consumer:
            await asyncio.wait_for(done.wait(), 60)
        return received

    async def send() -> None:
        async with Producer(broker.namesrv, group="p") as producer:
            await producer.send(Message("Poison", b"bad", keys="k"))

    asyncio.run(send())
    asyncio.run(consume(ConsumeResult.retry(delay_level=-1)))
    report = list_letters(HERE, to, groups=["careful"])
    ((group, topic, reason, letters, tries, *_),) = report.table("Groups").rows
    assert (group, topic, reason, letters, tries) == ("careful", "Poison", "given up", 1, "1")
    by_files = list_letters(HERE, str(broker.folder / "store"), groups=["careful"])
    assert by_files.table("Groups") == report.table("Groups")
    sent = replay_letters(HERE, to, to, groups=["careful"], to_group=True)
    assert sent.table("Sent").rows == [["%DLQ%careful", "%RETRY%careful", 1]]
    received = asyncio.run(consume(ConsumeResult.SUCCESS))
    assert [(each.topic, each.body) for each in received] == [("Poison", b"bad")]
