"""Which attributes a request may change, and the error otherwise."""

from __future__ import annotations

import pytest

from roquet.broker.manager.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    alter_attributes,
)
from roquet.errors import ConfigError

CURRENT = {"message.type": "NORMAL", "queue.type": "BatchCQ", "cleanup.policy": "DELETE"}


def test_a_new_topic_takes_all_attributes() -> None:
    alterations = {
        "+queue.type": "BatchCQ",
        "+cleanup.policy": "COMPACTION",
        "+message.type": "PRIORITY",
        "+reserve.time": "-1",
    }
    assert alter_attributes({}, alterations, TOPIC_ATTRIBUTES, is_new=True) == {
        "queue.type": "BatchCQ",
        "cleanup.policy": "COMPACTION",
        "message.type": "PRIORITY",
        "reserve.time": "-1",
    }


def test_attributes_are_added_changed_and_removed() -> None:
    assert alter_attributes(
        CURRENT, {"+reserve.time": "7", "-message.type": ""}, TOPIC_ATTRIBUTES, is_new=False
    ) == {"queue.type": "BatchCQ", "cleanup.policy": "DELETE", "reserve.time": "7"}
    assert alter_attributes(CURRENT, {"+message.type": "FIFO"}, TOPIC_ATTRIBUTES, is_new=False) == {
        **CURRENT,
        "message.type": "FIFO",
    }
    assert alter_attributes(CURRENT, {}, TOPIC_ATTRIBUTES, is_new=False) == CURRENT


def test_the_given_attributes_are_not_modified() -> None:
    current = dict(CURRENT)
    alterations = {"-message.type": "", "+reserve.time": "7"}
    alter_attributes(current, alterations, TOPIC_ATTRIBUTES, is_new=False)
    assert current == CURRENT
    assert alterations == {"-message.type": "", "+reserve.time": "7"}


@pytest.mark.parametrize(
    ("alterations", "message"),
    [
        ({"": ""}, "kv string format wrong."),
        ({"+": "x"}, "kv string format wrong."),
        ({"+a+b": "x"}, "kv string format wrong."),
        ({"+a-b": "x"}, "kv string format wrong."),
        (
            {"+message.type": "FIFO", "-message.type": ""},
            "alter duplication key. key: message.type",
        ),
        ({"-reserve.time": ""}, "attempt to delete a nonexistent key: reserve.time"),
        ({"message.type": "FIFO"}, "wrong format key: essage.type"),
        ({"+color": "red"}, "unsupported key: color"),
        (
            {"+queue.type": "SimpleCQ"},
            "attempt to update an unchangeable attribute. key: queue.type",
        ),
        ({"-queue.type": ""}, "attempt to update an unchangeable attribute. key: queue.type"),
        (
            {"+message.type": "fifo"},
            "value is not in set: [UNSPECIFIED, MIXED, TRANSACTION, PRIORITY, FIFO, DELAY, NORMAL]",
        ),
        ({"+reserve.time": "-2"}, "value is not in range(-1, 9223372036854775807)"),
        ({"+reserve.time": "soon"}, 'For input string: "soon"'),
        ({"+reserve.time": "9223372036854775808"}, 'For input string: "9223372036854775808"'),
        ({"+reserve.time": "٣"}, 'For input string: "٣"'),
        ({"+reserve.time": ""}, 'For input string: ""'),
    ],
)
def test_what_an_existing_topic_refuses(alterations: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        alter_attributes(CURRENT, alterations, TOPIC_ATTRIBUTES, is_new=False)
    assert raised.value.message == message
    assert raised.value.code == "attribute_refused"


@pytest.mark.parametrize("key", ["-message.type", "message.type"])
def test_a_new_topic_only_takes_additions(key: str) -> None:
    with pytest.raises(ConfigError, match="only add attribute is supported while creating topic"):
        alter_attributes({}, {key: "FIFO"}, TOPIC_ATTRIBUTES, is_new=True)


def test_the_attribute_of_groups() -> None:
    assert alter_attributes({}, {"+priority.factor": "100"}, GROUP_ATTRIBUTES, is_new=True) == {
        "priority.factor": "100"
    }
    with pytest.raises(ConfigError) as raised:
        alter_attributes({}, {"+priority.factor": "101"}, GROUP_ATTRIBUTES, is_new=True)
    assert raised.value.message == "value is not in range(0, 100)"
