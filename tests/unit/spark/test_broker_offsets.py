import json

import pytest

from roquet.errors import SparkOptionError
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.offsets import (
    by_queue,
    from_json,
    named,
    parse_assignment,
    to_json,
)

A0, A1, B0 = (
    MessageQueue("Orders", "a", 0),
    MessageQueue("Orders", "a", 1),
    MessageQueue("Payments", "b", 0),
)


def test_offsets_come_back_from_their_json() -> None:
    offsets = {B0: 7, A1: 2**60, A0: 0}
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_equal_offsets_are_equal_texts() -> None:
    assert json.dumps(to_json({A1: 1, A0: 0})) == json.dumps(to_json({A0: 0, A1: 1}))


def test_queues_are_sorted_as_numbers() -> None:
    queues = {MessageQueue("T", "a", number): 0 for number in (10, 9, 1)}
    assert list(to_json(queues)["T"]["a"]) == ["1", "9", "10"]


@pytest.mark.parametrize("bad", [7, [], {"T": 3}, {"T": {"a": {"x": 1}}}, {"T": {"a": {"0": "1"}}}])
def test_a_foreign_checkpoint_is_refused_with_a_hint(bad: object) -> None:
    with pytest.raises(SparkOptionError, match="checkpoint cannot be used") as caught:
        from_json(bad)
    assert "another query" in (caught.value.hint or "")


def test_offsets_of_an_option_by_queue() -> None:
    assert by_queue({"Orders": {"a": {0: -2, 1: 5}}}) == {A0: -2, A1: 5}


def test_an_assignment_names_queues_once() -> None:
    assert parse_assignment('{"Payments": {"b": [0]}, "Orders": {"a": [1, 0, 1]}}') == [A0, A1, B0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("{}", "naming no queue"),
        ('{"T": {"a": [-1]}}', "below 0"),
        ('{"T": [0]}', "wrong shape"),
        ('{"T": {"a": ["0"]}}', "wrong shape"),
    ],
)
def test_a_bad_assignment_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_assignment(text)


def test_a_long_list_of_queues_is_cut() -> None:
    queues = [MessageQueue("T", "a", number) for number in range(8)]
    assert named(queues).endswith("queue 4 of T on a and 3 more")
