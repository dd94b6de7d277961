"""The config files of a store, as far as all readers share them."""

from __future__ import annotations

import pytest

from roquet.format.config_files import batch_topic_names, topic_names

BATCH = b'{"attributes":{"queue.type":"BatchCQ"}}'


@pytest.mark.parametrize(
    "data",
    [
        b'{"topicConfigTable":{"A":{"perm":6},"B":' + BATCH + b'},"dataVersion":{"counter":1}}',
        b"{topicConfigTable:{'A':{perm:6},\"B\":" + BATCH + b"}}",
        b'{"dataVersion":null,"topicConfigTable":{"A":null,"B":' + BATCH + b"}}",
    ],
    ids=["json", "fastjson's dialect", "nulls"],
)
def test_topics_are_named(data: bytes) -> None:
    assert topic_names(data) == {"A", "B"}
    assert batch_topic_names(data) == {"B"}


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b" \n",
        b"[]",
        b"{}",
        b'{"topicConfigTable":null}',
        b'{"topicConfigTable":[]}',
        b'{"topicConfigTable":{"A":{"perm":}}}',
        b'{"topicConfigTable":{"A":{"perm":6}}',
        b'{"topicConfigTable":{"\xff":{}}}',
    ],
)
def test_malformed_tables_name_no_topics(data: bytes | None) -> None:
    assert topic_names(data) is None
    assert batch_topic_names(data) is None
