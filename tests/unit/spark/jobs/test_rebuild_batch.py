"""Batch consume queues made anew from the log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from roquet.format.batch_consume_queue import unpack_batch_units
from roquet.format.derived import QueueKey
from roquet.spark.jobs.rebuild import rebuild
from roquet.spark.jobs.rebuild_survey import OffsetRun, SurveyTaskResult, UnitRun, plan_queues
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.rebuilt_files import GOLDEN
from tests.unit.store.batch_kit import files_of, inner_batch, open_batches
from tests.unit.store.kit import SEGMENT_BYTES, message, put

SPLITS = pytest.mark.parametrize("split_bytes", [1 << 27, 700, 300])


def made(store: Path, new: Path, split_bytes: int) -> dict[str, bytes]:
    report = rebuild(HERE, str(store), str(new), index_slots=20, split_bytes=split_bytes)
    assert report.findings == []
    assert str(new / "batchconsumequeue") in report.outputs
    return files_of(new)


@SPLITS
def test_the_same_files(tmp_path: Path, split_bytes: int) -> None:
    """Batches of several sizes and single messages, over several files."""
    store = open_batches(tmp_path / "store")
    for size in (3, 1, 2, 4, 5, 2):
        put(store, inner_batch(size), message(topic="B"), message(topic="T"))
    store.shutdown()
    found = made(tmp_path / "store", tmp_path / "new", split_bytes)
    assert found == files_of(tmp_path / "store")
    assert len(found) == 3


@SPLITS
def test_a_topic_that_was_made_anew(tmp_path: Path, split_bytes: int) -> None:
    store = open_batches(tmp_path / "store")
    put(store, inner_batch(3), inner_batch(2))
    store.delete_topics(["B"])
    put(store, inner_batch(4), inner_batch(1))
    store.shutdown()
    found = made(tmp_path / "store", tmp_path / "new", split_bytes)
    assert found == files_of(tmp_path / "store")


def test_settings_tell_which_topics_have_batches(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_batches(root)
    put(store, inner_batch(3), inner_batch(2))
    store.shutdown()
    before = b"".join(files_of(root).values()).rstrip(b"\0")
    shutil.rmtree(root / "batchconsumequeue")
    (root / "config").mkdir(exist_ok=True)
    topics = {"topicConfigTable": {"B": {"attributes": {"queue.type": "BatchCQ"}}}}
    (root / "config" / "topics.json").write_text(json.dumps(topics))
    (data,) = made(root, tmp_path / "new", 1 << 27).values()
    assert data.rstrip(b"\0") == before
    assert len(data) == 13_800_000


@SPLITS
def test_inner_batches_tell_their_topic(tmp_path: Path, split_bytes: int) -> None:
    """Neither files nor settings know of the topic, as for ``roquet store rebuild``."""
    root = tmp_path / "store"
    store = open_batches(root)
    put(store, message(topic="T"), inner_batch(3), message(topic="B"), inner_batch(2))
    store.shutdown()
    before = files_of(root)
    shutil.rmtree(root / "batchconsumequeue")
    found = made(root, tmp_path / "new", split_bytes)
    assert {path: data.rstrip(b"\0") for path, data in found.items()} == {
        path: data.rstrip(b"\0") for path, data in before.items()
    }


def test_expired_queues_are_carried_over(tmp_path: Path) -> None:
    store = open_batches(tmp_path / "store")
    put(store, inner_batch(3, body=b"x" * 1000))
    for _ in range(5):
        put(store, message(b"y" * (SEGMENT_BYTES // 2), topic="T"))
    store.flush()
    store.upkeep.flush_logics(thorough=True)
    store.delete_files_manually(archived_offset=2 * SEGMENT_BYTES)
    store.retention.run_once()
    store.shutdown()
    assert made(tmp_path / "store", tmp_path / "new", 1 << 27) == files_of(tmp_path / "store")


@pytest.mark.parametrize("split_bytes", [1 << 27, 2000])
def test_a_store_of_java(tmp_path: Path, split_bytes: int) -> None:
    store = GOLDEN / "batch" / "crash"
    rebuild(HERE, str(store), str(tmp_path / "new"), split_bytes=split_bytes)
    old, new = files_of(store), files_of(tmp_path / "new")
    assert {path: data.rstrip(b"\0") for path, data in new.items()} == {
        path: data.rstrip(b"\0") for path, data in old.items()
    }


def test_entries_that_repeat_an_offset_take_no_place() -> None:
    key = QueueKey("B", 0)
    surveys = [
        SurveyTaskResult(queues={key: [OffsetRun(0, 6, 100, [UnitRun(0, 6, 3)])]}),
        SurveyTaskResult(queues={key: [OffsetRun(3, 9, 200, [UnitRun(3, 9, 3)])]}),
        SurveyTaskResult(queues={key: [OffsetRun(9, 11, 300, [UnitRun(9, 11, 1)])]}),
    ]
    plan = plan_queues(surveys, {}, batch_topics=frozenset({"B"}))
    assert plan.unit_ends == [{key: 0}, {key: 2}, {key: 3}]
    assert ([each.kind for each in plan.findings], plan.leap) == (["duplicate"], 0)


def test_an_entry_is_that_of_its_record(tmp_path: Path) -> None:
    store = open_batches(tmp_path / "store")
    put(store, inner_batch(3), message(topic="B", TAGS="A"))
    store.shutdown()
    (data,) = made(tmp_path / "store", tmp_path / "new", 1 << 27).values()
    first, second, *_ = unpack_batch_units(data)
    assert (first.base_offset, first.batch_size) == (0, 3)
    assert (second.base_offset, second.batch_size) == (3, 1)
    assert second.tags_code == 65
