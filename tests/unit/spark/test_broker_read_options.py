import re

import pytest

from roquet.client.expression import Sql
from roquet.errors import SparkOptionError
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.read_options import Position, ReadOptions, read_options
from roquet.spark.options import EARLIEST, LATEST

LEAST = {"namesrv": "127.0.0.1:9876", "subscribe": "Orders"}


def read(**given: str) -> ReadOptions:
    return read_options(
        {**LEAST, **{key.replace("__", "."): value for key, value in given.items()}}
    )


def test_defaults() -> None:
    found = read()
    assert found.topics == ("Orders",)
    assert found.start is None
    assert found.end == Position(None, None, LATEST)
    assert found.fail_on_data_loss
    assert found.expression == "*"
    assert found.group == "spark-rocketmq-source"
    assert found.max_trigger_delay_ms == 900_000
    assert found.decompress


def test_names_of_rocketmq_spark_are_aliases() -> None:
    found = read_options(
        {
            "nameserver": "10.0.0.1:9876;10.0.0.2:9876",
            "topic": "Orders",
            "subexpression": "paid || sent",
            "pullbatchsize": "32",
            "pulltimeoutms": "3000",
        }
    )
    assert found.client.namesrv_addresses == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert found.topics == ("Orders",)
    assert found.expression == "paid || sent"
    assert (found.pull_batch, found.pull_timeout_ms) == (32, 3000)


def test_one_way_to_name_topics() -> None:
    names = "'subscribe', 'subscribePattern', 'assign'"
    with pytest.raises(SparkOptionError, match=f"needs one of the options {names}"):
        read_options({"namesrv": "a:1"})
    for name, text in (("subscribePattern", "O.*"), ("assign", '{"T": {"a": [0]}}')):
        with pytest.raises(SparkOptionError, match=f"Set only one of {names}") as caught:
            read_options({**LEAST, name: text})
        assert caught.value.detail == f"given: 'subscribe', '{name}'"
    pattern = read_options({"namesrv": "a:1", "subscribePattern": "O.*"}).topic_pattern
    assert isinstance(pattern, re.Pattern)
    assigned = read_options({"namesrv": "a:1", "assign": '{"T": {"a": [1]}}'}).assigned
    assert assigned == (MessageQueue("T", "a", 1),)


def test_positions() -> None:
    found = read(
        startingOffsets='{"Orders": {"a": {"0": -2}}}',
        startingTimestamp="2026-11-15T00:00:00Z",
        startingOffsetsByTimestamp='{"Orders": {"a": {"0": 17}}}',
        endingOffsets="latest",
    )
    queue = MessageQueue("Orders", "a", 0)
    assert found.start == Position(1_794_700_800_000, {queue: 17}, {queue: EARLIEST})
    assert read(startingOffsets="latest").start == Position(None, None, LATEST)
    assert read(startingTimestamp="5").start == Position(5, None, EARLIEST)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingofsets": "earliest"}, "rocketmq has no option 'startingofsets'"),
        ({"startingOffsets": "{"}, "'startingOffsets' of rocketmq is '{', which is not JSON"),
        ({"endingOffsets": "earliest"}, "which is the beginning"),
        ({"endingOffsets": '{"T": {"a": {"0": -2}}}'}, "which is the beginning"),
        ({"startingOffsetsByTimestamp": "[]"}, "wrong shape"),
        ({"maxOffsetsPerTrigger": "0"}, "out of bounds"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "more than maxOffsets"),
        ({"minPartitions": "many"}, "not a whole number"),
        ({"subExpressionType": "SQL92"}, "there is no expression"),
        ({"subExpression": "||"}, "not an expression"),
        ({"subscribe": "no/name"}, "no/name"),
        ({"groupId": "no group"}, "no group"),
        ({"accessKey": "only"}, "go together"),
        ({"tlsCaFile": "/x.pem"}, "TLS is off"),
        ({"tls": "true", "tlsCaFile": "/nowhere/x.pem"}, "x.pem"),
        ({"namesrv": "nowhere"}, "nowhere"),
    ],
)
def test_bad_options_are_one_sentence_and_a_hint(given: dict[str, str], message: str) -> None:
    with pytest.raises(SparkOptionError) as caught:
        read_options({**LEAST, **given})
    assert message in str(caught.value)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_an_unknown_option_gets_the_nearest_name() -> None:
    with pytest.raises(SparkOptionError) as caught:
        read_options({**LEAST, "maxOffsetPerTrigger": "5"})
    assert caught.value.hint == "Did you mean 'maxOffsetsPerTrigger'?"


def test_a_filter_for_the_broker() -> None:
    found = read(subExpression="price > 10", subExpressionType="sql92")
    assert found.expression == Sql("price > 10")


def test_a_group_of_a_prefix_is_the_same_for_the_same_topics() -> None:
    first, again, other = (
        read(groupIdPrefix="etl", subscribe=topic).group for topic in ("A", "A", "B")
    )
    assert first == again != other
    assert first.startswith("etl-")
    assert read(groupId="own", groupIdPrefix="etl").group == "own"


def test_secrets_are_not_shown() -> None:
    found = read(accessKey="who", secretKey="hidden")
    assert "hidden" not in repr(found)
