"""Batch consume queues, and what else ``audit`` judges as ``roquet store verify`` does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES
from roquet.format.consume_queue import FILLER, UNIT_BYTES
from roquet.runtime.clock import ManualClock
from roquet.spark.jobs.audit import audit
from roquet.spark.report import Report
from roquet.storefiles.layout import MANIFEST_FILE
from tests.unit.spark.jobs.audit_faults import kinds_of, patch
from tests.unit.spark.jobs.kit import HERE
from tests.unit.store.batch_kit import SMALL_FILE, inner_batch, open_batches
from tests.unit.store.kit import NOW_MS, message, put
from tests.unit.store.synthetic import NOW_MS as SYNTHETIC_NOW_MS
from tests.unit.store.synthetic import SyntheticStore

CLOCK = ManualClock(NOW_MS + 10**7)
SLOTS = 20
SPLITS = pytest.mark.parametrize("split_bytes", [1 << 27, 500])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with batches and single messages in B, and messages in T."""
    store = open_batches(tmp_path / "store")
    for size in (3, 1, 2, 4, 5, 2):
        put(store, inner_batch(size), message(topic="B"), message(topic="T"))
    store.shutdown()
    return tmp_path / "store"


def check(root: Path, split_bytes: int) -> Report:
    return audit(HERE, str(root), index_slots=SLOTS, split_bytes=split_bytes, clock=CLOCK)


def queue_files(root: Path) -> list[Path]:
    return sorted((root / "batchconsumequeue" / "B" / "0").iterdir())


@SPLITS
def test_a_sound_store(root: Path, split_bytes: int) -> None:
    report = check(root, split_bytes)
    assert report.findings == []
    assert (report.numbers["records"], report.numbers["entries"]) == (18, 18)
    assert report.numbers["queues"] == 2
    assert "unchecked" not in report.numbers


@SPLITS
@pytest.mark.parametrize(
    ("position", "data", "kinds"),
    [
        (8, b"\0\0\1\1", {"entry-wrong"}),
        (12, b"\7" * 8, {"tags-code"}),
        (28, b"\0" * 7 + b"\1", {"entry-wrong"}),
        (36, b"\0\7", {"entry-wrong"}),
        (BATCH_UNIT_BYTES, b"\0" * 7 + b"\7", {"entry-missing", "entry-stray"}),
        (BATCH_UNIT_BYTES, bytes(BATCH_UNIT_BYTES), {"entry-missing", "entry-wrong"}),
    ],
    ids=["size", "tags code", "first offset", "messages", "elsewhere", "empty"],
)
def test_a_planted_fault(
    root: Path, position: int, data: bytes, kinds: set[str], split_bytes: int
) -> None:
    patch(queue_files(root)[0], position, data)
    report = check(root, split_bytes)
    assert kinds_of(report) == kinds
    assert all("B queue 0" in finding.where for finding in report.findings)


@SPLITS
def test_a_lost_file_is_missing_entries_unless_they_may_be_late(
    root: Path, split_bytes: int
) -> None:
    queue_files(root)[-1].write_bytes(bytes(SMALL_FILE))
    assert kinds_of(check(root, split_bytes)) == {"entry-missing", "vanished"}
    (root / MANIFEST_FILE).unlink()
    assert kinds_of(check(root, split_bytes)) == {"entry-missing"}
    (root / "abort").write_bytes(b"1")
    assert check(root, split_bytes).findings == []


def test_a_lost_queue(root: Path) -> None:
    shutil.rmtree(root / "batchconsumequeue")
    table = {name: {"attributes": {"queue.type": kind}} for name, kind in TYPES.items()}
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    assert kinds_of(check(root, 1 << 27)) == {"entry-missing", "vanished"}


TYPES = {"B": "BatchCQ", "T": "SimpleCQ"}


@SPLITS
def test_filler_stands_for_messages_whose_loss_is_known(tmp_path: Path, split_bytes: int) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(6):
        if number == 3:
            store.next_queue_offsets["Orders", 0] += 2
        store.put(unique_key=f"id{number}")
    root = store.write()
    path = root / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    patch(path, 3 * UNIT_BYTES, 2 * FILLER)
    clock = ManualClock(SYNTHETIC_NOW_MS)
    assert audit(HERE, str(root), split_bytes=split_bytes, clock=clock).findings == []
    patch(path, 3 * UNIT_BYTES, bytes(2 * UNIT_BYTES))
    assert "gap" in kinds_of(audit(HERE, str(root), split_bytes=split_bytes, clock=clock))


@SPLITS
def test_light_queues_go_on_from_one_task_to_the_next(tmp_path: Path, split_bytes: int) -> None:
    store = SyntheticStore(tmp_path / "store")
    for number in range(9):
        more = {
            "INNER_MULTI_DISPATCH": "%LMQ%a",
            "INNER_MULTI_QUEUE_OFFSET": str(number),
        }
        store.put(unique_key=f"id{number}", more=more)
    root = store.write()
    shutil.copytree(root / "consumequeue" / "Orders", root / "consumequeue" / "%LMQ%a")
    clock = ManualClock(SYNTHETIC_NOW_MS)
    report = audit(HERE, str(root), split_bytes=split_bytes, clock=clock)
    assert report.findings == []
    assert report.numbers["entries"] == 18
