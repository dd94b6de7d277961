"""Offsets: committed, reset, pulled, and what of them is in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import consumer_offset as module
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.errors import StoreError
from roquet.runtime.clock import ManualClock
from tests.unit.broker.manager.kit import FillingDisk, warnings_of


class Offsets:
    """A manager on a disk of its own that can be restarted."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.config = BrokerConfig(store_root=str(root), **settings)  # type: ignore[arg-type]
        self.path = root / "config" / "consumerOffset.json"
        self.disk = FillingDisk()
        self.clock = ManualClock()
        self.manager = self.again()

    def again(self) -> ConsumerOffsetManager:
        manager = ConsumerOffsetManager.at(self.config, self.disk, self.clock)
        assert manager.load() is None
        return manager


@pytest.fixture
def offsets(tmp_path: Path) -> Offsets:
    return Offsets(tmp_path)


@pytest.fixture
def manager(offsets: Offsets) -> ConsumerOffsetManager:
    return offsets.manager


# ------------------------------------------------------------------------------- committed


def test_a_commit_is_found_again(manager: ConsumerOffsetManager) -> None:
    assert manager.query("g", "T", 0) == -1
    manager.commit("g", "T", 0, 5)
    manager.commit("g", "T", 1, 0)
    manager.commit("h", "T", 0, 9)
    assert manager.query("g", "T", 0) == 5
    assert manager.query("g", "T", 1) == 0
    assert manager.query("g", "T", 2) == -1
    assert manager.query("g", "U", 0) == -1
    assert manager.offsets_of("g", "T") == {0: 5, 1: 0}
    assert manager.offsets_of("g", "U") is None
    assert manager.table == {"T@g": {0: 5, 1: 0}, "T@h": {0: 9}}


def test_going_back_is_allowed_and_logged(
    manager: ConsumerOffsetManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager.commit("g", "T", 0, 5)
    manager.commit("g", "T", 0, 6)
    manager.commit("g", "T", 0, 6)
    assert warnings_of(caplog) == []
    manager.commit("g", "T", 0, 4)
    manager.commit("g", "T", 0, 3)
    assert manager.query("g", "T", 0) == 3
    assert warnings_of(caplog) == ["T@g queue 0 went back to 4 from 6"], "and not for each again"


def test_the_version_changes_every_so_many_commits(tmp_path: Path) -> None:
    offsets = Offsets(tmp_path, consumer_offset_update_version_step=4)
    manager = offsets.manager
    versions = []
    for number in range(9):
        offsets.clock.advance(1)
        manager.commit("g", "T", 0, number)
        versions.append(manager.data_version.counter)
    assert versions == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert manager.data_version.timestamp_ms == offsets.clock.now_ms() - 1


def test_offsets_are_bounded(
    manager: ConsumerOffsetManager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "OFFSETS_MAX", 3)
    manager.commit("g", "T", 0, 1)
    manager.commit("g", "T", 1, 1)
    manager.commit_pull("g", "T", 0, 1)
    manager.commit("g", "T", 2, 1)
    manager.commit("h", "T", 0, 1)
    manager.commit_pull("g", "T", 1, 8)
    assert manager.table == {"T@g": {0: 1, 1: 1}}
    assert warnings_of(caplog) == ["T@g queue 2 was dropped: too many offsets"], "and not for each"
    assert manager.query_pull("g", "T", 1) == 1
    manager.commit("g", "T", 1, 7)
    assert manager.query("g", "T", 1) == 7, "known ones continue"
    manager.remove_group("g")
    manager.commit("h", "T", 0, 1)
    assert manager.query("h", "T", 0) == 1, "forgotten ones make room"
    manager.assign_reset_offset("T", "h", 0, 2)
    assert manager.query_then_erase_reset_offset("T", "h", 0) == 2
    manager.commit("i", "T", 0, 1)
    manager.commit("i", "T", 1, 1)
    manager.commit("i", "T", 2, 1)
    assert manager.table == {"T@h": {0: 2}, "T@i": {0: 1, 1: 1}}


# ---------------------------------------------------------------------------------- pulled


def test_pulled_offsets_are_ahead_of_committed_ones(manager: ConsumerOffsetManager) -> None:
    assert manager.query_pull("g", "T", 0) == -1
    manager.commit("g", "T", 0, 5)
    assert manager.query_pull("g", "T", 0) == 5
    manager.commit_pull("g", "T", 0, 9)
    assert manager.query_pull("g", "T", 0) == 9
    assert manager.query("g", "T", 0) == 5
    assert manager.query_pull("g", "T", 1) == -1


# ----------------------------------------------------------------------------------- reset


def test_a_reset_wins_until_it_is_delivered(manager: ConsumerOffsetManager) -> None:
    manager.commit("g", "T", 0, 50)
    assert not manager.has_offset_reset("T", "g", 0)
    assert manager.query_then_erase_reset_offset("T", "g", 0) is None
    manager.assign_reset_offset("T", "g", 0, 7)
    assert manager.has_offset_reset("T", "g", 0)
    assert not manager.has_offset_reset("T", "g", 1)
    assert not manager.has_offset_reset("T", "h", 0)
    manager.commit("g", "T", 0, 60)
    assert manager.query("g", "T", 0) == 7
    assert manager.query_then_erase_reset_offset("T", "g", 1) is None
    assert manager.query_then_erase_reset_offset("T", "g", 0) == 7
    assert manager.query_then_erase_reset_offset("T", "g", 0) is None
    assert not manager.has_offset_reset("T", "g", 0)
    assert manager.query("g", "T", 0) == 60
    assert manager.resets == {}


def test_listeners_are_notified_of_a_reset(manager: ConsumerOffsetManager) -> None:
    told: list[tuple[str, int, str]] = []
    manager.reset_assigned.append(lambda *reset: told.append(reset))
    manager.assign_reset_offset("T", "g", 3, 7)
    manager.assign_reset_offset("T", "g", 3, -1)
    assert told == [("T", 3, "g")]


def test_a_reset_reaches_an_offline_group(offsets: Offsets) -> None:
    offsets.manager.assign_reset_offset("T", "g", 2, 0)
    assert offsets.manager.table == {"T@g": {2: 0}}
    offsets.manager.persist()
    assert offsets.again().query("g", "T", 2) == 0
    assert not offsets.again().has_offset_reset("T", "g", 2)


def test_a_nonsensical_reset_is_ignored(manager: ConsumerOffsetManager) -> None:
    manager.assign_reset_offset("", "g", 0, 1)
    manager.assign_reset_offset("T", "", 0, 1)
    manager.assign_reset_offset("T", "g", -1, 1)
    manager.assign_reset_offset("T", "g", 0, -1)
    assert manager.table == {}
    assert not manager.has_offset_reset("T", "g", 0)


def test_clients_that_reset_by_themselves_do_not_see_it(tmp_path: Path) -> None:
    manager = Offsets(tmp_path, use_server_side_reset_offset=False).manager
    manager.assign_reset_offset("T", "g", 0, 7)
    manager.commit("g", "T", 0, 50)
    assert manager.query("g", "T", 0) == 50


# ------------------------------------------------------------------------ by group and topic


@pytest.fixture
def several(manager: ConsumerOffsetManager) -> ConsumerOffsetManager:
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T"), ("gg", "TT")):
        manager.commit(group, topic, 0, 1)
        manager.commit_pull(group, topic, 0, 2)
        manager.assign_reset_offset(topic, group, 0, 3)
    manager.commit("g@broadcast", "T", 0, 4)
    return manager


def test_topics_and_groups(several: ConsumerOffsetManager) -> None:
    assert several.topics_of_group("g") == {"T", "U"}
    assert several.groups_of_topic("T") == {"g", "h"}
    assert several.topics_of_group("T") == set()
    assert several.groups_of_topic("unknown") == set()


def test_a_group_is_forgotten(several: ConsumerOffsetManager) -> None:
    several.remove_group("g")
    assert set(several.table) == {"T@h", "TT@gg"}
    assert several.query_pull("g", "T", 0) == -1
    assert not several.has_offset_reset("T", "g", 0)
    assert several.query_pull("h", "T", 0) == 2
    assert several.has_offset_reset("T", "h", 0)


def test_a_topic_is_forgotten(several: ConsumerOffsetManager) -> None:
    several.remove_topic("T")
    assert set(several.table) == {"U@g", "TT@gg"}
    assert several.query_pull("h", "T", 0) == -1
    assert not several.has_offset_reset("T", "h", 0)
    assert several.query_pull("g", "U", 0) == 2


def test_a_group_takes_the_offsets_of_another(manager: ConsumerOffsetManager) -> None:
    manager.commit("g", "T", 0, 5)
    manager.commit("g", "T", 1, 6)
    manager.commit("h", "T", 0, 50)
    manager.commit("h", "T", 7, 70)
    manager.clone("g", "h", "T")
    assert manager.offsets_of("h", "T") == {0: 5, 1: 6}
    manager.commit("g", "T", 0, 9)
    assert manager.query("h", "T", 0) == 5
    manager.clone("unknown", "h", "T")
    assert manager.offsets_of("h", "T") == {0: 5, 1: 6}
    manager.clone("g", "g", "T")
    assert manager.offsets_of("g", "T") == {0: 9, 1: 6}
    assert manager._count == 4


# ---------------------------------------------------------------------------------- the file


def test_the_file_holds_what_was_committed(offsets: Offsets) -> None:
    manager = offsets.manager
    manager.commit("g", "T", 0, 5)
    manager.commit("b@broadcast", "T", 0, 4)
    manager.commit_pull("g", "T", 0, 6)
    manager.persist()
    assert offsets.path.read_text("utf-8") == (
        '{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,'
        '\n\t\t"timestamp":1700000000000\n\t},'
        '\n\t"groupTopicMap":{\n\t\t"g":[\n\t\t\t"T"\n\t\t]\n\t},'
        '\n\t"offsetTable":{\n\t\t"T@g":{\n\t\t\t0:5\n\t\t},'
        '\n\t\t"T@b@broadcast":{\n\t\t\t0:4\n\t\t}\n\t}\n}'
    )
    again = offsets.again()
    assert again.table == manager.table
    assert again.data_version == manager.data_version
    assert again.begin_persist() is None


def test_only_changes_are_written(offsets: Offsets) -> None:
    manager = offsets.manager
    manager.persist()
    changes: list[Callable[[], None]] = [
        lambda: manager.commit("g", "T", 0, 5),
        lambda: manager.assign_reset_offset("T", "g", 0, 3),
        lambda: manager.clone("g", "h", "T"),
        lambda: manager.remove_group("g"),
        lambda: manager.remove_topic("T"),
    ]
    for change in changes:
        writes = offsets.disk.writes
        manager.persist()
        assert offsets.disk.writes == writes
        change()
        manager.persist()
        assert offsets.disk.writes == writes + 1
    writes = offsets.disk.writes
    manager.commit_pull("g", "T", 0, 5)
    manager.remove_group("unknown")
    manager.persist()
    assert offsets.disk.writes == writes


def test_a_snapshot_is_consistent(offsets: Offsets) -> None:
    manager = offsets.manager
    manager.commit("g", "T", 0, 5)
    job = manager.begin_persist()
    assert job is not None
    manager.commit("g", "T", 0, 6)
    manager.commit("h", "T", 0, 6)
    job()
    assert offsets.again().table == {"T@g": {0: 5}}
    manager.persist()
    assert offsets.again().table == manager.table


def test_a_write_that_meets_a_full_disk_is_retried(offsets: Offsets) -> None:
    offsets.manager.commit("g", "T", 0, 5)
    offsets.disk.is_full = True
    with pytest.raises(StoreError):
        offsets.manager.persist()
    offsets.disk.is_full = False
    offsets.manager.persist()
    assert offsets.again().query("g", "T", 0) == 5


def test_a_file_without_a_version_is_read(offsets: Offsets) -> None:
    offsets.path.parent.mkdir()
    offsets.path.write_text('{"offsetTable":{"T@g":{0:5,"1":6}}}', "utf-8")
    manager = offsets.again()
    assert manager.table == {"T@g": {0: 5, 1: 6}}
    assert manager.data_version.counter == 0


def test_a_malformed_key_is_harmless(offsets: Offsets) -> None:
    offsets.path.parent.mkdir()
    offsets.path.write_text('{"offsetTable":{"odd":{0:5},"T@g":{0:1}}}', "utf-8")
    manager = offsets.again()
    assert manager.topics_of_group("g") == {"T"}
    manager.remove_group("g")
    assert manager.table == {"odd": {0: 5}}
    manager.persist()
    assert offsets.again().table == {"odd": {0: 5}}


def test_loaded_offsets_count_as_committed_ones(
    offsets: Offsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets.manager.commit("g", "T", 0, 5)
    offsets.manager.commit("g", "T", 1, 5)
    offsets.manager.persist()
    monkeypatch.setattr(module, "OFFSETS_MAX", 2)
    again = offsets.again()
    again.commit("g", "T", 2, 5)
    assert again.table == {"T@g": {0: 5, 1: 5}}
