"""Messages of stores and topics, sent again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.client import ClientOptions
from roquet.errors import NoRoute, SparkOptionError
from roquet.model.properties import encode_properties
from roquet.spark.broker.outgoing import ROW_ID
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.message_feeds import open_feed
from roquet.spark.jobs.replay import replay
from roquet.spark.jobs.resend import COLUMNS, Address, Row, resend, shares_of, target_options
from roquet.spark.report import Report
from roquet.testing.background import BackgroundBroker, background_broker
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.log.kit import stored_messages, write_store
from tests.unit.store.kit import NOW_MS, message

STORE = Path(__file__).parents[3] / "golden" / "data" / "store-json-clean"
TOPIC = "GoldenOrder"
WANTED = Wanted(topics=[TOPIC])


@pytest.fixture(scope="module")
def broker() -> Iterator[BackgroundBroker]:
    with background_broker() as running:
        yield running


@pytest.fixture
def to(broker: BackgroundBroker) -> ClientOptions:
    return ClientOptions(namesrv=broker.namesrv)


def test_a_topic_of_a_store_goes_to_another_one(
    broker: BackgroundBroker, to: ClientOptions
) -> None:
    broker.create_topic("Copy")
    expected = [each for each in stored_messages(STORE) if each.topic == TOPIC]
    counted = replay(HERE, str(STORE), to, wanted=WANTED, to_topic="Copy", is_dry_run=True)
    assert counted.table("Messages").rows == [[TOPIC, len(expected)]]
    assert broker.messages("Copy") == []
    report = replay(HERE, str(STORE), to, wanted=WANTED, to_topic="Copy")
    assert report.table("Sent").rows == [[TOPIC, "Copy", len(expected)]]
    assert report.outputs == ["topic Copy"]
    found = broker.messages("Copy")
    assert {each.properties[ROW_ID]: each.body for each in found} == {
        f"replay/{TOPIC}/{each.offset_message_id}": each.body for each in expected
    }
    assert sorted((each.tags or "", each.properties.get("KEYS", "")) for each in found) == sorted(
        (each.properties.get("TAGS", ""), each.properties.get("KEYS", "")) for each in expected
    )


def test_what_is_read_through_the_broker_has_the_ids_of_its_files(
    broker: BackgroundBroker, to: ClientOptions
) -> None:
    for name in ("First", "Second", "Third"):
        broker.create_topic(name, queues=3)
    replay(HERE, str(STORE), to, wanted=WANTED, to_topic="First")
    wanted = Wanted(topics=["First"])
    counted = replay(HERE, to, to, wanted=wanted, to_topic="Second", is_dry_run=True)
    total = len(broker.messages("First"))
    assert counted.numbers["messages"] == total
    replay(HERE, to, to, wanted=wanted, to_topic="Second")
    replay(HERE, str(broker.folder / "store"), to, wanted=wanted, to_topic="Third", rate=10_000)
    ids = [
        sorted(each.properties[ROW_ID] for each in broker.messages(name))
        for name in ("Second", "Third")
    ]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == total


def test_queues_keep_their_order(
    broker: BackgroundBroker, to: ClientOptions, tmp_path: Path
) -> None:
    broker.create_topic("Ordered", queues=2)
    made = [message(str(number).encode(), queue_id=number % 2) for number in range(300)]
    write_store(tmp_path / "s", made, step_ms=10)
    wanted = Wanted(topics=["T"], from_ms=NOW_MS + 100, to_ms=NOW_MS + 2_900)
    replay(HERE, str(tmp_path / "s"), to, wanted=wanted, to_topic="Ordered", is_in_order=True)
    for queue_id in (0, 1):
        bodies = [
            int(each.body) for each in broker.messages("Ordered") if each.queue_id == queue_id
        ]
        assert bodies == list(range(10 + queue_id, 290, 2))


class RestartAt:
    """Sends all to one topic, and has the broker restart in the middle."""

    def __init__(self, broker: BackgroundBroker, number: int) -> None:
        self.broker, self.left = broker, number

    def __call__(self, row: Row) -> Address:
        del row
        self.left -= 1
        if self.left == 0:
            self.broker.restart()
        return Address("Survived")


def test_nothing_is_lost_when_a_broker_restarts(tmp_path: Path) -> None:
    bodies = [str(number).encode() for number in range(200)]
    write_store(tmp_path / "s", [message(body) for body in bodies])
    report = Report(job="replay", source="s")
    with background_broker(folder=tmp_path / "broker") as broker:
        broker.create_topic("Survived")
        feed = open_feed(str(tmp_path / "s"), Wanted(topics=["T"]), columns=COLUMNS)
        to = ClientOptions(namesrv=broker.namesrv)
        address = RestartAt(broker, 100)
        resend(HERE, report, feed, address, to, name="n", to_topic="Survived", rate=4_000)
        found = broker.messages("Survived")
    assert report.numbers == {"messages": 200}
    assert {each.body for each in found} == set(bodies)
    assert len({each.properties[ROW_ID] for each in found}) == 200


def test_a_message_that_no_broker_would_accept_is_a_finding(
    broker: BackgroundBroker, to: ClientOptions, tmp_path: Path
) -> None:
    broker.create_topic("Kept")
    odd = encode_properties({"blank": " ", "own": "x"})
    write_store(tmp_path / "s", [message(b""), message(b"x", properties=odd)])
    segment = min((tmp_path / "s" / "commitlog").iterdir())
    wanted = Wanted(topics=["T"])
    report = replay(HERE, str(tmp_path / "s"), to, wanted=wanted, to_topic="Kept")
    assert report.numbers == {"messages": 1, "refused": 1}
    (found,) = broker.messages("Kept")
    assert {name for name in found.properties if name.islower()} == {"own"}
    data = bytearray(segment.read_bytes())
    data[4:8] = b"\x00\x01\x02\x03"
    segment.write_bytes(data)
    report = replay(HERE, str(tmp_path / "s"), to, wanted=wanted, to_topic="Kept")
    assert [each.kind for each in report.findings] == ["damaged"]
    assert report.numbers["messages"] == 1


def test_nonsensical_options_are_refused_before_anything_is_sent(to: ClientOptions) -> None:
    with pytest.raises(SparkOptionError, match="which topics"):
        replay(HERE, str(STORE), to, wanted=Wanted(), to_topic="Copy")
    for to_topic in (None, TOPIC):
        with pytest.raises(SparkOptionError, match="their own topic"):
            replay(HERE, to, to, wanted=WANTED, to_topic=to_topic)
    with pytest.raises(SparkOptionError, match="sends nothing"):
        replay(HERE, str(STORE), to, wanted=WANTED, to_topic="Copy", rate=-1)
    with pytest.raises(SparkOptionError):
        replay(HERE, str(STORE), to, wanted=WANTED, to_topic="no topic")


def test_a_missing_topic_is_reported_at_once() -> None:
    with background_broker({"autoCreateTopicEnable": "false"}) as strict:
        to = ClientOptions(namesrv=strict.namesrv)
        with pytest.raises(NoRoute):
            replay(HERE, str(STORE), to, wanted=WANTED, to_topic="Nowhere")


def test_a_rate_is_shared_and_its_messages_go_one_by_one(to: ClientOptions) -> None:
    assert [len(each) for each in shares_of([[]] * 5, 2)] == [3, 2]
    assert shares_of([], 2) == []
    assert target_options(to, None, rate=10).batch_bytes == 1
    assert target_options(to, None, rate=1e6) == target_options(to, None)
