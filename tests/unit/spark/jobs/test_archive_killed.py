"""Runs that are killed at every step; the next run has every message in the lake once."""

import shutil
from collections.abc import Callable, Iterator
from itertools import cycle, pairwise
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow.fs as pafs
import pytest
from pyspark.sql import SparkSession

from roquet.errors import SparkError
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.lake import Lake, RunPlan
from roquet.spark.jobs.verify import verify
from tests.unit.spark.jobs.dying_lake import DyingFiles, Killed
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import BROKER, lake_rows, log_rows, run
from tests.unit.spark.log.kit import mixed_messages, write_store

RANGE_BYTES = 4 << 10
COUNTS = (15, 50, 60)


class _AnyOrder:
    """A session whose workers are done in another order than that of the tasks."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._items: list[Any] = []

    @property
    def sparkContext(self) -> "_AnyOrder":  # noqa: N802 - Spark's name
        return self

    def parallelize(self, items: list[Any], _parts: int) -> "_AnyOrder":
        self._items = items
        return self

    def map(self, work: Callable[[Any], Any]) -> "_AnyOrder":
        order = list(range(len(self._items)))
        self._random.shuffle(order)
        done = {at: work(self._items[at]) for at in order}
        self._items = [done[at] for at in sorted(done)]
        return self

    def collect(self) -> list[Any]:
        return self._items


def any_order(seed: int) -> SparkSession:
    return cast("SparkSession", _AnyOrder(seed))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A log as it grows."""
    folder = tmp_path_factory.mktemp("stores")
    messages = mixed_messages(max(COUNTS))
    for count in COUNTS:
        write_store(folder / str(count), messages[:count], step_ms=600_000)
    return [folder / str(count) for count in COUNTS]


def run_until_killed(
    monkeypatch: pytest.MonkeyPatch,
    steps_max: int,
    session: SparkSession,
    store: Path,
    lake: Path,
    *,
    is_store: bool = False,
) -> bool:
    """Archive, and say whether it was killed."""
    dying = DyingFiles(steps_max, is_store=is_store)
    making = Lake.__init__

    def made(self: Lake, address: str) -> None:
        making(self, address)
        self.filesystem = pafs.PyFileSystem(dying)
        self.is_uploading = is_store

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "__init__", made)
        try:
            archive(session, str(store), str(lake), broker_name=BROKER, range_bytes=RANGE_BYTES)
        except Killed:
            assert dying.is_dead
    return dying.is_dead


def kills(
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
    before: Path,
    lake: Path,
    *,
    each: int = 1,
    is_store: bool = False,
) -> Iterator[int]:
    """The lake after a run that was killed at each of its steps, or each so-and-so many."""
    for steps_max in range(0, 1000, each):
        shutil.rmtree(lake, ignore_errors=True)
        shutil.copytree(before, lake)
        session = any_order(steps_max)
        if not run_until_killed(monkeypatch, steps_max, session, store, lake, is_store=is_store):
            return
        yield steps_max


def leftovers(lake: Path) -> list[str]:
    return [
        path.name
        for path in lake.rglob("*")
        if path.name.startswith(".") or path.name == "run.json"
    ]


def has_gap(lake: Path) -> bool:
    return any(one.stop < other.start for one, other in pairwise(Lake(str(lake)).manifests(BROKER)))


@pytest.mark.parametrize(("is_store", "kills_min"), [(False, 40), (True, 12)])
def test_the_next_run_repairs_all(
    is_store: bool,  # noqa: FBT001 - a parameter of the test
    kills_min: int,
    stores: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake, before = tmp_path / "lake", tmp_path / "before"
    run(stores[0], before, range_bytes=RANGE_BYTES)
    expected = log_rows(stores[2])
    # As a round of following has other ranges than the first of the next process.
    sizes = cycle([1 << 30, RANGE_BYTES, 2 << 10])
    count = gaps = 0
    for steps_max in kills(monkeypatch, stores[1], before, lake, is_store=is_store):
        gaps += has_gap(lake)
        run(stores[2], lake, range_bytes=next(sizes))
        assert lake_rows(lake) == expected, steps_max
        assert leftovers(lake) == [], steps_max
        assert not verify(HERE, str(stores[2]), str(lake), broker_name=BROKER).findings, steps_max
        count += 1
    assert count > kills_min
    assert gaps
    assert lake_rows(lake) == log_rows(stores[1])


def test_a_repair_that_is_killed_too(
    stores: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, before = tmp_path / "lake", tmp_path / "before"
    run(stores[0], before, range_bytes=RANGE_BYTES)
    expected = log_rows(stores[2])
    killed = 0
    for steps_max in kills(monkeypatch, stores[1], before, lake, each=7):
        killed += run_until_killed(monkeypatch, steps_max, any_order(1), stores[2], lake)
        run(stores[2], lake, range_bytes=1 << 30)
        assert lake_rows(lake) == expected, steps_max
        assert leftovers(lake) == [], steps_max
    assert killed > 3


def test_what_a_killed_run_wrote_and_the_log_has_lost_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, short = tmp_path / "whole", tmp_path / "short"
    write_store(whole, mixed_messages(120), step_ms=60_000)
    shutil.copytree(whole, short)
    segments = sorted((short / "commitlog").iterdir())
    segments[0].unlink()
    lake, before = tmp_path / "lake", tmp_path / "before"
    before.mkdir()
    rows, still = log_rows(whole), log_rows(short)
    assert 0 < len(still) < len(rows)
    kept = 0
    for steps_max in kills(monkeypatch, whole, before, lake, each=9):
        written, was_planned = lake_rows(lake), (lake / "_manifest" / BROKER / "run.json").exists()
        report = run(short, lake, range_bytes=RANGE_BYTES)
        found = lake_rows(lake)
        # Nothing that was there goes, and nothing that the log has is left out.
        assert written.items() | still.items() == found.items(), steps_max
        kinds = {each.kind for each in report.findings}
        assert kinds <= {"lost"}, steps_max
        assert kinds or not was_planned or found.keys() == rows.keys(), steps_max
        told = verify(HERE, str(short), str(lake), broker_name=BROKER).findings
        assert {each.kind for each in told} <= {"gap"}, steps_max
        kept += len(found.keys() - still.keys()) > 0
    assert kept


def test_a_worker_that_outlives_its_driver_publishes_nothing(
    stores: list[Path], tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    run(stores[0], lake)
    before = lake_rows(lake)

    class Takeover(_AnyOrder):
        def map(self, work: Callable[[Any], Any]) -> "_AnyOrder":
            Lake(str(lake)).write_plan(BROKER, RunPlan(run_id="next", ranges=[]))
            return super().map(work)

    with pytest.raises(SparkError, match="Another run"):
        archive(cast("SparkSession", Takeover(1)), str(stores[1]), str(lake), broker_name=BROKER)
    assert lake_rows(lake) == before
    run(stores[1], lake)
    assert lake_rows(lake) == log_rows(stores[1])
