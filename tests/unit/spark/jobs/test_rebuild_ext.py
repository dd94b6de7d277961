"""A ConsumeQueueExt made anew is the one that the broker made, as far as its filters are known."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.expression_filter import make_filters
from roquet.broker.manager.consumer import ConsumerManager
from roquet.errors import SparkOptionError, StoreError
from roquet.filter.bloom import BloomFilterData
from roquet.filter.consumer_filters import ConsumerFilterData
from roquet.format.consume_queue_ext import END_MARK, end_after, fits, is_ext_address, place_after
from roquet.format.derived import QueueKey
from roquet.model.properties import encode_properties
from roquet.model.subscription import SubscriptionData
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.spark.jobs.audit import audit
from roquet.spark.jobs.rebuild import rebuild
from roquet.spark.jobs.rebuild_ext import sound_filters
from roquet.spark.jobs.rebuild_survey import OffsetRun, SurveyTaskResult, UnitRun, plan_queues
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.rebuilt_files import GOLDEN, SPLITS, extensions, index, queues
from tests.unit.store.kit import NOW_MS, config, message, opened, put

STORE = config(consume_queue_ext=True)  # units of 20 and 34 bytes in files of 400
EXPRESSIONS = {"G": "a > 3 AND b IS NOT NULL", "H": "a BETWEEN 2 AND 7"}


def subscription(expression: str) -> SubscriptionData:
    return SubscriptionData(topic="T0", sub_string=expression, expression_type="SQL92")


def written(root: Path, *, has_bitmaps: bool = True) -> Path:
    """A store whose groups came one by one while messages were stored."""
    clock = ManualClock(NOW_MS)
    settings = BrokerConfig(store_root=str(root), calculate_filter_bitmap=has_bitmaps)
    with opened(root, clock=clock, config=STORE) as store:
        consumers = ConsumerManager(settings, clock, notify=lambda *_: None)
        filters = make_filters(settings, Files(), clock, store=store, consumers=consumers)
        groups = list(EXPRESSIONS.items())
        for number in range(240):
            if number % 80 == 79 and groups:
                group, expression = groups.pop()
                filters.register(group, [subscription(expression)])
            clock.advance(5)
            named = {"a": str(number % 10), "TAGS": f"Tag{number % 4}", "KEYS": f"k{number}"}
            if number % 3:
                named["b"] = "x"
            properties = encode_properties(named)
            put(store, message(topic=f"T{number % 2}", queue_id=number % 3, properties=properties))
        filters.unregister("H")
        filters.persist()
    return root


def check_equal(new: Path, store: Path) -> None:
    assert queues(new) == queues(store)
    assert extensions(new) == extensions(store)
    assert index(new) == index(store)


@pytest.mark.parametrize("has_bitmaps", [True, False])
@pytest.mark.parametrize("split_bytes", SPLITS)
def test_units_and_bit_maps(split_bytes: int, tmp_path: Path, *, has_bitmaps: bool) -> None:
    store, new = written(tmp_path / "store", has_bitmaps=has_bitmaps), tmp_path / "new"
    report = rebuild(HERE, str(store), str(new), split_bytes=split_bytes)
    assert report.findings == []
    assert report.numbers["filters"] == (2 if has_bitmaps else 0)
    check_equal(new, store)
    units = extensions(store)
    assert len(units) > len({name.rpartition("/")[0] for name in units})
    assert any(END_MARK in data for data in units.values())
    assert str(new / "consumequeue_ext") in report.outputs
    for part in ("commitlog", "config"):
        shutil.copytree(store / part, new / part)
    shutil.copy(store / "checkpoint", new)
    assert audit(HERE, str(new), clock=ManualClock(NOW_MS + 3_600_000)).findings == []


def test_without_the_files(tmp_path: Path) -> None:
    """What nobody can see must be told: then it is as it was."""
    store, new, plain = written(tmp_path / "store"), tmp_path / "new", tmp_path / "plain"
    before = Path(shutil.copytree(store, tmp_path / "before"))
    shutil.rmtree(store / "consumequeue_ext")
    rebuild(HERE, str(store), str(plain))
    assert not (plain / "consumequeue_ext").exists()
    assert index(plain) == index(before)
    codes = [int.from_bytes(data[12:20], "big", signed=True) for data in queues(plain).values()]
    assert not any(map(is_ext_address, codes))
    report = rebuild(HERE, str(store), str(new), ext="bitmaps")
    assert report.numbers["extFileBytes"] == 48 << 20
    for name, data in extensions(new).items():
        assert data.startswith(extensions(before)[name][:340])


def test_what_is_chosen(tmp_path: Path) -> None:
    store = written(tmp_path / "store")
    rebuild(HERE, str(store), str(tmp_path / "none"), ext="none")
    assert not (tmp_path / "none" / "consumequeue_ext").exists()
    report = rebuild(HERE, str(store), str(tmp_path / "units"), ext="units")
    assert report.numbers["filters"] == 0
    bare = extensions(tmp_path / "units")
    assert all(data[18:20] == b"\0\0" for data in bare.values())
    for name in ("consumerFilter.json", "consumerFilter.json.bak"):
        (store / "config" / name).write_text("{")
    report = rebuild(HERE, str(store), str(tmp_path / "unknown"), ext="bitmaps")
    assert extensions(tmp_path / "unknown") == bare


def test_a_running_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have filters that are in no file: a message would be lost for want of their bits."""
    store, new = written(tmp_path / "store"), tmp_path / "new"
    monkeypatch.setattr("roquet.storefiles.view.store_holder", lambda *_: 1)
    with pytest.raises(SparkOptionError, match="open"):
        rebuild(HERE, str(store), str(new), ext="bitmaps")
    assert rebuild(HERE, str(store), str(new)).numbers["filters"] == 0
    assert all(data[18:20] == b"\0\0" for data in extensions(new).values())


def test_expired_queues_keep_their_units(tmp_path: Path) -> None:
    store, new = tmp_path / "store", tmp_path / "new"
    with opened(store, config=STORE) as writer:
        put(writer, message(topic="Old", TAGS="A"))
        while writer.commit_log.wrote_offset < 3 * STORE.commit_log_file_bytes:
            put(writer, message(b"x" * 900, topic="New"))
    min((store / "commitlog").iterdir()).unlink()
    report = rebuild(HERE, str(store), str(new))
    assert (report.numbers["carriedQueues"], report.findings) == (1, [])
    name = "Old/0/" + "0" * 20
    assert queues(new)[name] == queues(store)[name]
    assert extensions(new)[name] == extensions(store)[name]


def test_other_delay_levels_are_seen_through_units(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="delay levels"):
        rebuild(
            HERE, str(GOLDEN / "store-ext-crash"), str(tmp_path / "new"), delay_levels="9s 8s 7s"
        )


def test_places_of_units() -> None:
    """Counting many units of one length is putting them one by one."""
    for file_bytes, size_bytes, start in [(400, 34, 0), (400, 20, 380), (100, 96, 0), (91, 20, 60)]:
        end = start
        assert fits(size_bytes, file_bytes)
        for count in range(1, 40):
            end = place_after(end, size_bytes, file_bytes) + size_bytes
            assert end_after(start, size_bytes, count, file_bytes) == end
    assert not fits(97, 100)
    assert not fits(1 << 15, 1 << 20)


def test_units_over_ranges() -> None:
    """Units of a life that is over do not count, nor those of places that are taken."""
    key = QueueKey("T", 0)
    surveys = [
        SurveyTaskResult(queues={key: [OffsetRun(4, 7, 100, [UnitRun(4, 7, 20)])]}),
        SurveyTaskResult(
            queues={key: [OffsetRun(7, 8, 200, [UnitRun(7, 8, 20)]), OffsetRun(0, 2, 300)]}
        ),
        SurveyTaskResult(
            queues={key: [OffsetRun(2, 5, 400, [UnitRun(2, 4, 20), UnitRun(4, 5, 34)])]}
        ),
        SurveyTaskResult(queues={key: [OffsetRun(4, 6, 500, [UnitRun(4, 6, 34)])]}),
        SurveyTaskResult(queues={key: [OffsetRun(6, 7, 600, [UnitRun(6, 7, 34)])]}),
    ]
    surveys[1].queues[key][1].units = [UnitRun(0, 2, 34)]
    plan = plan_queues(surveys, {}, ext_file_bytes=1000)
    assert plan.restarts == {key: 300}
    assert [each.get(key) for each in plan.unit_ends] == [None, 0, 68, 142, 176]


def test_filters_of_another_bloom_filter() -> None:
    sound = ConsumerFilterData(bloom_filter_data=BloomFilterData((3, 111), 112))
    assert sound_filters([sound, sound]) == (sound, sound)
    for bad in (None, BloomFilterData((3,), 128), BloomFilterData((112,), 112)):
        assert sound_filters([sound, ConsumerFilterData(bloom_filter_data=bad)]) == ()
    assert sound_filters([ConsumerFilterData(bloom_filter_data=BloomFilterData((1,), 9))]) == ()
    assert sound_filters([]) == ()
