"""Queues and index made from the log are, byte for byte, those that the broker made."""

import shutil
from pathlib import Path

import pytest

from roquet.errors import SparkOptionError, StoreDamaged, StoreError
from roquet.format.derived import QueueKey
from roquet.runtime.clock import ManualClock
from roquet.spark.jobs.audit import audit
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.rebuild import rebuild
from roquet.spark.jobs.rebuild_survey import OffsetRun, SurveyTaskResult, plan_queues
from tests.unit.spark.jobs.audit_faults import HURT, SEGMENT_BYTES, Planter, filled
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.rebuilt_files import SPLITS, index, queues
from tests.unit.spark.log.kit import mixed_messages, write_store
from tests.unit.store.synthetic import NOW_MS, SyntheticStore


@pytest.mark.parametrize("split_bytes", SPLITS)
def test_a_store_of_roquet(split_bytes: int, tmp_path: Path) -> None:
    store, new = tmp_path / "store", tmp_path / "new"
    write_store(store, mixed_messages(300), step_ms=777)
    report = rebuild(HERE, str(store), str(new), split_bytes=split_bytes)
    assert (report.findings, report.numbers["records"]) == ([], 300)
    assert queues(new) == queues(store)
    assert index(new) == index(store)


def test_many_files(tmp_path: Path) -> None:
    """Queues and index of several files, cut anywhere; they pass an audit."""
    store = filled(tmp_path / "store")
    made = []
    for split_bytes in SPLITS:
        new = tmp_path / str(split_bytes)
        report = rebuild(HERE, str(store.root), str(new), split_bytes=split_bytes)
        assert report.numbers["indexFiles"] == 7  # tags are put, too, unlike in this store
        assert queues(new) == queues(store.root)
        made.append((index(new), [path.name for path in sorted((new / "index").iterdir())]))
    assert made[0] == made[1] == made[2]
    for part in ("commitlog", "config"):
        shutil.copytree(store.root / part, new / part)
    shutil.copy(store.root / "checkpoint", new)
    assert audit(HERE, str(new), clock=ManualClock(NOW_MS)).findings == []


def test_without_what_is_to_be_built(tmp_path: Path) -> None:
    store, new = filled(tmp_path / "store"), tmp_path / "new"
    whole = tmp_path / "whole"
    rebuild(HERE, str(store.root), str(whole))
    shutil.rmtree(store.root / "consumequeue")
    shutil.rmtree(store.root / "index")
    report = rebuild(HERE, str(store.root), str(new), index_slots=11, index_entries=40)
    assert report.numbers["consumeQueueFileBytes"] == 6_000_000
    assert index(new) == index(whole)
    name = "Orders/1/" + "0" * 20
    assert queues(new)[name].startswith(queues(whole)[name])


def test_records_that_expired(tmp_path: Path) -> None:
    """Fillers stand for them, and a queue without records is carried over."""
    store, new = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES), tmp_path / "new"
    store.put("Old", 0, b"x")
    for number in range(60):
        store.put("Orders", number % 2, f"body {number}".encode(), keys=f"k{number}")
    store.write()
    old = queues(store.root)["Old/0/" + "0" * 20]
    Planter(store).segments()[0].unlink()
    report = rebuild(HERE, str(store.root), str(new), split_bytes=2000)
    assert (report.numbers["carriedQueues"], report.findings) == (1, [])
    assert queues(new)["Old/0/" + "0" * 20] == old
    first = queues(new)["Orders/0/" + "0" * 20]
    assert first[:20] == (0).to_bytes(8, "big") + b"\x7f\xff\xff\xff" + bytes(8)
    last = max(name for name in queues(store.root) if name.startswith("Orders/0/"))
    assert queues(new)[last] == queues(store.root)[last]


def test_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    for life in range(2):
        store.next_queue_offsets.clear()
        for number in range(9 - life):
            store.put("Orders", 0, f"{life} {number}".encode(), keys=f"k{number}")
    store.write()
    last_life = store.placed[9:]
    for split_bytes in (1 << 27, 700):
        new = tmp_path / str(split_bytes)
        report = rebuild(HERE, str(store.root), str(new), split_bytes=split_bytes)
        assert report.findings == []
        data = queues(new)["Orders/0/" + "0" * 20]
        offsets = [int.from_bytes(data[at : at + 8], "big") for at in range(0, 8 * 20, 20)]
        assert offsets == [each.physical_offset for each in last_life]
        assert not any(data[8 * 20 :])


def test_damage_is_told(tmp_path: Path) -> None:
    store, new = filled(tmp_path / "store"), tmp_path / "new"
    planter = Planter(store)
    planter.log(90, b"\xff")
    report = rebuild(HERE, str(store.root), str(new), split_bytes=3000)
    assert [each.kind for each in report.findings] == ["bad-record", "gap"]
    record = store.placed[HURT]
    name = f"{record.topic}/{record.queue_id}/{0:020d}"
    at = record.queue_offset * 20
    assert queues(new)[name][at + 8 : at + 12] == b"\x7f\xff\xff\xff"


def test_a_leap_is_not_filled(tmp_path: Path) -> None:
    store, new = filled(tmp_path / "store"), tmp_path / "new"
    Planter(store).long(20, 1 << 50)
    with pytest.raises(StoreDamaged, match="jump too far"):
        rebuild(HERE, str(store.root), str(new))
    assert not new.exists()


def test_what_is_refused(tmp_path: Path) -> None:
    store = filled(tmp_path / "store").root
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(StoreError, match="not empty"):
        rebuild(HERE, str(store), str(tmp_path / "full"))
    with pytest.raises(StoreError, match="not a directory"):
        rebuild(HERE, str(store), str(tmp_path / "full" / "file"))
    with pytest.raises(StoreError, match="inside"):
        rebuild(HERE, str(store), str(store / "new"))
    with pytest.raises(SparkOptionError, match="whole"):
        rebuild(HERE, str(store), str(tmp_path / "new"), wanted=Wanted(topics=["Orders"]))
    rebuild(HERE, str(store), str(tmp_path / "new"), is_dry_run=True)
    assert not (tmp_path / "new").exists()


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("roquet.spark.jobs.rebuild_write.IndexChainWorker.__call__", fail)
    store = filled(tmp_path / "store").root
    with pytest.raises(OSError, match="no space"):
        rebuild(HERE, str(store), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_lives_over_ranges() -> None:
    key = QueueKey("Orders", 0)
    surveys = [
        SurveyTaskResult(queues={key: [OffsetRun(4, 7, 100)]}),
        SurveyTaskResult(),
        SurveyTaskResult(queues={key: [OffsetRun(7, 8, 200), OffsetRun(0, 2, 300)]}),
        SurveyTaskResult(queues={key: [OffsetRun(2, 5, 400)]}),
    ]
    plan = plan_queues(surveys, {})
    assert plan.findings == []
    assert plan.restarts == {key: 300}
    assert plan.expected == [{}, {}, {}, {key: 2}]
    surveys[2].queues[key].pop()
    surveys[3].queues[key] = [OffsetRun(9, 10, 400)]
    plan = plan_queues(surveys, {})
    assert plan.expected == [{}, {key: 7}, {key: 7}, {key: 8}]
    assert ([each.kind for each in plan.findings], plan.leap) == (["gap"], 1)
