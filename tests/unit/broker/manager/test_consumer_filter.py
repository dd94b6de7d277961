"""The table of filters: which one wins, which ones are dead, what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import consumer_filter
from roquet.broker.manager.consumer_filter import (
    ConsumerFilter,
    ConsumerFilterManager,
    compile_expression,
)
from roquet.errors import ConfigError, ProtocolError
from roquet.filter.sql92 import Sql92Error
from roquet.model.subscription import SubscriptionData
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


class Filters:
    """A table with its clock and file."""

    def __init__(self, root: Path, *, now_ms: int = NOW_MS, **settings: int) -> None:
        self.root = root
        self.clock = ManualClock(now_ms)
        self.latest_ms = 0
        config = BrokerConfig(store_root=str(root), **settings)  # type: ignore[arg-type]
        self.table = ConsumerFilterManager.at(
            config, Files(), self.clock, latest_store_time_ms=lambda: self.latest_ms
        )

    def beat(
        self, expression: str | None = "a > 1", *, version: int = 1, topic: str = "T"
    ) -> ConsumerFilter | None:
        self.table.register("G", [sql(expression, version=version, topic=topic)])
        return self.table.find(topic, "G")

    @property
    def only(self) -> ConsumerFilter:
        found = self.table.find("T", "G")
        assert found is not None
        return found

    def written(self) -> object:
        self.table.persist()
        return json.loads((self.root / "config/consumerFilter.json").read_text())


def sql(
    expression: str | None, *, version: int = 1, topic: str | None = "T", kind: str = "SQL92"
) -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, expression_type=kind, sub_version=version
    )


@pytest.fixture(name="at")
def _at(tmp_path: Path) -> Filters:
    (tmp_path / "config").mkdir()
    return Filters(tmp_path)


# -- precedence -----------------------------------------------------------------------------------


def test_a_new_filter(at: Filters) -> None:
    found = at.beat("a > 1", version=7)
    assert found is not None
    data = found.data
    assert (data.topic, data.consumer_group) == ("T", "G")
    assert (data.expression, data.expression_type) == ("a > 1", "SQL92")
    assert (data.client_version, data.born_time_ms, data.dead_time_ms) == (7, NOW_MS, 0)
    assert not data.is_dead
    assert data.bloom_filter_data == at.table.bloom.generate("G#T")
    assert found.expression.matches({"a": "2"})
    assert list(at.table.of_topic("T")) == [found]


@pytest.mark.parametrize(
    "subscription",
    [
        sql("a", kind="TAG"),
        sql("a > 1", kind=""),
        sql(None),
        sql(""),
        sql("a > 1", topic=None),
        sql("a >"),
        sql("a > 1", kind="XPATH"),
    ],
)
def test_subscriptions_without_a_filter(at: Filters, subscription: SubscriptionData) -> None:
    at.table.register("G", [subscription])
    assert at.table.table == {}
    assert list(at.table.of_topic("T")) == []
    assert at.table.find("T", "G") is None


def test_a_newer_expression_wins(at: Filters) -> None:
    at.beat("a > 1", version=1)
    at.clock.advance(5)
    found = at.beat("a > 2", version=2)
    assert found is not None
    assert (found.data.expression, found.data.client_version) == ("a > 2", 2)
    assert (found.data.born_time_ms, found.judged_from_ms) == (NOW_MS + 5, NOW_MS + 5)


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_expression_does_not(at: Filters, version: int) -> None:
    first = at.beat("a > 1", version=2)
    assert at.beat("a > 2", version=version) is first


def test_the_same_expression_takes_the_newer_version(at: Filters) -> None:
    at.beat(version=2)
    at.clock.advance(5)
    for version, expected in ((3, 3), (1, 3)):
        found = at.beat(version=version)
        assert found is not None
        assert (found.data.client_version, found.data.born_time_ms) == (expected, NOW_MS)


def test_a_newer_one_that_cannot_be_parsed_removes_the_older(at: Filters) -> None:
    at.beat("a > 1", version=2)
    assert at.beat("a >", version=1) is not None
    assert at.beat("a >", version=3) is None
    assert at.table.table == {}
    assert at.beat("a > 1", version=1) is not None, "nothing is left of the refused one"


# -- dead filters -------------------------------------------------------------------------------


def test_the_filter_of_a_group_is_dead_until_the_group_returns(at: Filters) -> None:
    at.beat(version=2)
    at.clock.advance(5)
    at.table.unregister("other")
    assert not at.only.data.is_dead
    at.table.unregister("G")
    assert at.only.data.dead_time_ms == NOW_MS + 5
    at.clock.advance(5)
    at.table.unregister("G")
    assert at.only.data.dead_time_ms == NOW_MS + 5, "it does not die twice"
    for version in (1, 2, 3):
        at.table.unregister("G")
        at.beat(version=version)
        assert not at.only.data.is_dead
        assert at.only.data.born_time_ms == NOW_MS


@pytest.mark.parametrize(("version", "is_dead"), [(1, True), (2, False)])
def test_another_expression_of_the_same_version(
    at: Filters, *, version: int, is_dead: bool
) -> None:
    at.beat("a > 1", version=2)
    at.table.unregister("G")
    at.beat("a > 2", version=version)
    assert (at.only.data.expression, at.only.data.is_dead) == ("a > 1", is_dead)


def test_a_topic_that_is_no_longer_subscribed_to_is_dead(at: Filters) -> None:
    at.beat(topic="T")
    at.beat(topic="U")
    assert at.only.data.is_dead
    found = at.table.find("U", "G")
    assert found is not None
    assert not found.data.is_dead
    at.table.register("G", [sql("*", topic="T", kind="TAG")])
    assert at.only.data.is_dead


def test_a_topic_that_is_now_filtered_by_tags_keeps_its_filter(at: Filters) -> None:
    """As with upstream: the group may go back, and nothing needs the filter meanwhile."""
    at.beat()
    at.table.register("G", [sql("*", kind="TAG")])
    assert not at.only.data.is_dead


def test_setting_the_clock_back_revives_no_filter(tmp_path: Path) -> None:
    at = Filters(tmp_path)
    at.beat()
    at.clock.set(NOW_MS - 1_000)
    at.table.unregister("G")
    assert at.only.data.is_dead


def test_dead_filters_are_forgotten_after_a_day(at: Filters) -> None:
    at.beat(topic="U")
    at.beat()
    at.table.unregister("G")
    at.clock.advance(DAY_MS - 1)
    at.table.clean()
    assert at.only.data.is_dead
    at.clock.advance(1)
    at.table.register("H", [sql("b = 1")])
    assert at.written() == at.written()
    assert {topic: list(groups) for topic, groups in at.table.table.items()} == {"T": ["H"]}


def test_the_retention_of_dead_filters_is_a_setting(tmp_path: Path) -> None:
    at = Filters(tmp_path, filter_data_clean_ms=1_000)
    at.beat()
    at.clock.advance(DAY_MS)
    at.table.clean()
    at.table.unregister("G")
    at.clock.advance(999)
    at.table.clean()
    assert at.table.table
    at.clock.advance(1)
    at.table.clean()
    assert at.table.table == {}


# -- bit maps -----------------------------------------------------------------------------------


def test_bit_maps_are_valid_from_the_latest_message_on(at: Filters) -> None:
    """The log's time never goes back, so it may be ahead of a clock that did."""
    at.latest_ms = NOW_MS + 60_000
    at.beat()
    assert at.only.judged_from_ms == NOW_MS + 60_000
    assert at.only.data.born_time_ms == NOW_MS


def test_settings_without_a_valid_bloom_filter(tmp_path: Path) -> None:
    for settings in ({"bloom_filter_error_percent": 100}, {"expected_filter_consumers": 0}):
        with pytest.raises(ConfigError):
            Filters(tmp_path, **settings)


# -- limits -------------------------------------------------------------------------------------


def test_the_number_of_filters_is_bounded(at: Filters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filter, "FILTERS_MAX", 2)
    for group in ("A", "B", "C"):
        at.table.register(group, [sql("a > 1")])
    assert list(at.table.table["T"]) == ["A", "B"]
    at.table.register("A", [sql("a > 2", version=2)])
    assert len(at.table.table["T"]) == 2, "one may replace another"
    found = at.table.find("T", "A")
    assert found is not None
    assert found.data.expression == "a > 2"


def test_the_length_of_expressions_is_bounded(at: Filters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_filter, "CHARACTERS_MAX", 11)
    for group, expression in (("A", "a > 1"), ("B", "a > 10"), ("C", "a=1")):
        at.table.register(group, [sql(expression)])
    assert list(at.table.table["T"]) == ["A", "B"]


def test_filters_of_one_heartbeat_are_bounded(at: Filters) -> None:
    """The rest comes with the next ones, because known ones cost nothing."""
    text = "a > 1".ljust(30_000)
    beat = [sql(text, topic=topic) for topic in "TUVW"]
    for expected in ("TU", "TUVW"):
        at.table.register("G", beat)
        assert list(at.table.table) == list(expected)
        assert not any(groups["G"].data.is_dead for groups in at.table.table.values())


def test_an_expression_that_is_too_long_removes_the_older(at: Filters) -> None:
    at.beat("a > 1", version=1)
    assert at.beat("a > 1".ljust(65_537), version=2) is None


# -- the file -----------------------------------------------------------------------------------


def test_every_filter_is_dead_after_a_start(at: Filters) -> None:
    at.beat(version=5)
    at.table.persist()
    again = Filters(at.root, now_ms=NOW_MS + 40_000)
    again.latest_ms = NOW_MS + 50_000
    assert again.table.load() is None
    data = again.only.data
    assert (data.born_time_ms, data.dead_time_ms) == (NOW_MS, NOW_MS + 10_000)
    assert again.only.judged_from_ms == NOW_MS + 50_000
    again.beat(version=5)
    assert not again.only.data.is_dead
    assert again.only.data.born_time_ms == NOW_MS


def test_a_filter_dies_no_earlier_than_it_was_born(at: Filters) -> None:
    at.beat()
    at.table.persist()
    again = Filters(at.root, now_ms=NOW_MS + 10)
    again.table.load()
    assert again.only.data.dead_time_ms == NOW_MS


def test_filters_of_another_bloom_filter_are_not_used(at: Filters) -> None:
    at.beat()
    at.table.persist()
    again = Filters(at.root, expected_filter_consumers=64)
    assert again.table.load() is None
    assert again.table.table == {}
    assert again.written() == {"filterDataByTopic": {}}


@pytest.mark.parametrize(
    ("old", "new"), [('"a > 1"', '"a >"'), ('"SQL92"', '"XPATH"'), ('"a > 1"', "null")]
)
def test_a_filter_that_cannot_be_parsed_is_skipped(at: Filters, old: str, new: str) -> None:
    at.beat()
    at.table.register("H", [sql("b = 1")])
    at.table.persist()
    path = at.root / "config/consumerFilter.json"
    path.write_text(path.read_text().replace(old, new, 1))
    again = Filters(at.root)
    assert again.table.load() is None
    assert list(again.table.table["T"]) == ["H"]
    assert again.table.begin_persist() is not None


def test_the_backup_is_used(at: Filters) -> None:
    at.beat()
    at.table.persist()
    at.beat("a > 2", version=2)
    at.table.persist()
    (at.root / "config/consumerFilter.json").write_bytes(b"{")
    again = Filters(at.root)
    assert again.table.load() is not None
    assert again.only.data.expression == "a > 1"


def test_a_file_of_something_else_is_refused(at: Filters) -> None:
    (at.root / "config/consumerFilter.json").write_text('{"filterDataByTopic":{"T":5}}')
    with pytest.raises(ConfigError):
        at.table.load()


def test_the_file_is_written_when_something_changed(at: Filters) -> None:
    at.beat(version=1)
    at.table.persist()
    assert at.table.begin_persist() is None
    at.beat(version=1)
    assert at.table.begin_persist() is None
    at.beat(version=2)
    assert at.table.begin_persist() is not None


# -- expressions --------------------------------------------------------------------------------


def test_compiling() -> None:
    assert compile_expression("SQL92", "a = 1").matches({"a": "1"})
    with pytest.raises(Sql92Error):
        compile_expression("SQL92", "a =")
    with pytest.raises(ProtocolError, match="XPATH"):
        compile_expression("XPATH", "a = 1")
