"""Topics written from templates are those written one by one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.manager import topic_texts as module
from roquet.broker.manager.topic_texts import TopicTexts
from roquet.model.fastjson import dumps
from roquet.model.topic_config import TopicConfig

NAMES = st.text(max_size=5) | st.sampled_from(["T", "%RETRY%g", module._MARK, f'"{module._MARK}"'])
TOPICS = st.builds(
    TopicConfig,
    topic_name=NAMES,
    attributes=st.dictionaries(NAMES, NAMES, max_size=2),
    order=st.booleans(),
    perm=st.integers(0, 7),
    topic_filter_type=st.sampled_from(["SINGLE_TAG", module._MARK]),
)


def write(topic: TopicConfig) -> str:
    return dumps(msgspec.to_builtins(topic))


@given(st.lists(TOPICS, max_size=5))
def test_templates_change_no_text(topics: list[TopicConfig]) -> None:
    texts = TopicTexts(write)
    for topic in topics * 2:
        name = topic.topic_name or ""
        assert texts.member(name, topic) == f"{dumps(name)}:{write(topic)}".encode()


def test_topics_of_one_shape_are_written_once() -> None:
    written: list[str | None] = []

    def count(topic: TopicConfig) -> str:
        written.append(topic.topic_name)
        return write(topic)

    texts = TopicTexts(count)
    for number in range(100):
        texts.member(f"T{number}", TopicConfig(topic_name=f"T{number}"))
        texts.member(f"U{number}", TopicConfig(topic_name=f"U{number}", perm=4))
    assert written == [module._MARK, module._MARK]


def test_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEMPLATES_MAX", 3)
    texts = TopicTexts(write)
    for perm in range(10):
        texts.member("T", TopicConfig(topic_name="T", perm=perm))
    assert len(texts._templates) <= 3
