"""Only what the lake has goes, and lake and log never overlap."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from roquet.cli.main import roquet
from roquet.errors import SparkError, SparkOptionError
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.spark import session
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lake import RangeManifest
from roquet.spark.jobs.tier import choose_cut, covered_until, tier
from roquet.spark.report import Report
from roquet.store.drop import drop_segments
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import lake_rows, log_rows
from tests.unit.spark.log.kit import mixed_messages, stored_rows, write_store
from tests.unit.store.kit import NOW_MS, SEGMENT_BYTES, opened

RANGE_BYTES = 8 << 10
HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", mixed_messages(400), step_ms=60_000)
    return tmp_path / "store"


@pytest.fixture
def lake(store: Path, tmp_path: Path) -> Path:
    archive(HERE, str(store), str(tmp_path / "lake"), range_bytes=RANGE_BYTES)
    return tmp_path / "lake"


def segments(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "commitlog").iterdir())


def run(store: Path, lake: Path, **more: object) -> Report:
    return tier(HERE, str(store), str(lake), **more)  # type: ignore[arg-type]


def kept_reasons(report: Report) -> list[str]:
    return [str(row[3]) for row in report.table("Segments").rows]


def test_what_is_archived_goes_and_nothing_is_lost(store: Path, lake: Path) -> None:
    rows = log_rows(store)
    before = segments(store)

    def drop(cut: int) -> Sequence[str]:
        return drop_segments(store, cut)

    told = run(store, lake)
    assert segments(store) == before
    assert (told.outputs, told.findings) == ([], [])
    report = run(store, lake, drop=drop)
    gone = report.outputs
    assert gone == before[: len(gone)]
    assert len(gone) == report.numbers["segmentsToDrop"] == told.numbers["segmentsToDrop"]
    assert len(gone) >= 2
    assert segments(store) == before[len(gone) :]
    assert kept_reasons(report)[: len(gone)] == ["goes"] * len(gone)
    with opened(store, clock=ManualClock(NOW_MS + 24 * HOUR_MS)):
        pass  # the store goes on
    archive(HERE, str(store), str(lake), range_bytes=RANGE_BYTES)
    assert lake_rows(lake) == rows
    assert run(store, lake, drop=drop).findings == []


def test_files_of_the_lake_are_synced_first(
    store: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    paths: dict[int, Path] = {}
    opening = Files.open

    def opened_file(self: Files, path: Path, **more: bool) -> int:
        handle = opening(self, path, **more)
        paths[handle] = path
        return handle

    monkeypatch.setattr(Files, "open", opened_file)
    monkeypatch.setattr(Files, "data_sync", lambda _, fd: synced.append(paths[fd].name))
    cuts: list[int] = []

    def drop(cut: int) -> Sequence[str]:
        assert synced
        cuts.append(cut)
        return []

    run(store, lake, drop=drop)
    needed = {
        path.name
        for path in [*lake.rglob("*.parquet"), *lake.glob("_manifest/log/0*.json")]
        if int(path.stem.rpartition("-")[2]) < cuts[0]
    }
    assert needed <= set(synced)


def test_a_finding_keeps_all(store: Path, lake: Path) -> None:
    next(lake.rglob("part-*.parquet")).unlink()
    report = run(store, lake, drop=lambda _: pytest.fail("nothing may go"))
    assert [each.kind for each in report.findings] == ["missing"]
    assert report.numbers["segmentsToDrop"] == 0


def test_a_body_that_differs_keeps_all(store: Path, lake: Path) -> None:
    victim = next(each for each in stored_rows(store) if len(each["body"]) > 100)
    segment = store / "commitlog" / segments(store)[0]
    data = bytearray(segment.read_bytes())
    at = data.index(victim["body"], victim["physicalOffset"])
    data[at] ^= 1
    segment.write_bytes(data)
    report = run(store, lake)
    assert [each.kind for each in report.findings] == ["different"]
    assert report.numbers["segmentsToDrop"] == 0


def test_damage_of_the_log_stays(tmp_path: Path, store: Path) -> None:
    victim = sorted(log_rows(store))[10]
    segment = store / "commitlog" / segments(store)[0]
    data = bytearray(segment.read_bytes())
    data[victim + 4 : victim + 8] = bytes(4)
    segment.write_bytes(data)
    archive(HERE, str(store), str(tmp_path / "damaged"), range_bytes=RANGE_BYTES)
    report = run(store, tmp_path / "damaged")
    assert report.numbers["segmentsToDrop"] == 0
    assert kept_reasons(report)[0] == "damaged, here or before"


def test_the_young_stay(store: Path, lake: Path) -> None:
    newest_ms = max(row["storeTimestamp"] for row in stored_rows(store)) // 1000
    assert run(store, lake, clock=ManualClock(newest_ms)).numbers["segmentsToDrop"] == 0
    all_of_them = run(store, lake).numbers["segmentsToDrop"]
    assert isinstance(all_of_them, int)
    report = run(store, lake, clock=ManualClock(newest_ms), keep_ms=(newest_ms - NOW_MS) // 2)
    dropped = report.numbers["segmentsToDrop"]
    assert isinstance(dropped, int)
    assert 0 < dropped < all_of_them
    assert kept_reasons(report)[dropped] == "too young"


def test_what_a_group_has_to_consume_stays(store: Path, lake: Path) -> None:
    (store / "config").mkdir(exist_ok=True)
    table = {"offsetTable": {"T0@slow": {"0": 0}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(table))
    report = run(store, lake)
    assert report.numbers["segmentsToDrop"] == 0
    assert kept_reasons(report)[0] == "a group has yet to consume it"
    assert run(store, lake, is_unconsumed_kept=False).numbers["segmentsToDrop"]


def test_a_lake_of_some_topics_is_refused(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "some"
    archive(HERE, str(store), str(lake), wanted=Wanted(topics=["T0"]))
    with pytest.raises(SparkOptionError, match="all topics"):
        run(store, lake)


def test_the_command_on_a_stopped_store(
    store: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "open_session", lambda **_: _Given())
    before = segments(store)
    words = ["spark", "tier", str(store), "--lake", str(lake), "--json"]
    told = CliRunner().invoke(roquet, words)
    assert (told.exit_code, segments(store)) == (0, before), told.output
    done = CliRunner().invoke(roquet, [*words, "--drop"])
    report = json.loads(done.output)
    assert done.exit_code == 0
    assert segments(store) == before[report["numbers"]["segmentsToDrop"] :] != before


class _Given:
    def __enter__(self) -> object:
        return HERE

    def __exit__(self, *_: object) -> None:
        pass


def made(start: int, stop: int, *, is_complete: bool = True) -> RangeManifest:
    return RangeManifest(broker_name="a", start=start, stop=stop, is_complete=is_complete)


def test_how_far_ranges_reach() -> None:
    ranges = [made(0, 10), made(10, 20), made(25, 30), made(30, 40, is_complete=False)]
    assert [covered_until(ranges, start) for start in (0, 12, 20, 25, 30)] == [20, 20, 20, 30, 30]
    assert covered_until([], SEGMENT_BYTES) == SEGMENT_BYTES


def test_where_the_cut_is() -> None:
    growing = made(20, 30, is_complete=False)
    ranges = [made(0, 10), made(10, 20), growing]
    assert choose_cut(ranges, 0) == (ranges[:2], 20)
    assert choose_cut(ranges, 20) == (ranges[:2], 20)
    assert choose_cut(ranges, 25) == (ranges, 30)
    assert choose_cut([growing], 0) == ([], 20)
    # A run that goes on has written later ranges first.
    later = [made(0, 10), made(20, 30), made(30, 40, is_complete=False)]
    assert choose_cut(later, 0) == (later[:1], 10)
    assert choose_cut(later, 20) == (later[:2], 30)
    stale = [made(0, 10), made(10, 15, is_complete=False), made(20, 30)]
    assert choose_cut(stale, 0) == (stale[:1], 10)
    with pytest.raises(SparkError, match="missing"):
        choose_cut(ranges, 31)
