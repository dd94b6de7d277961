"""``audit`` and ``rebuild`` with a session: the work is done by its Python processes."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from roquet.cli.main import roquet
from roquet.runtime.clock import ManualClock
from roquet.spark import session
from roquet.spark.jobs.audit import audit
from roquet.spark.jobs.rebuild import rebuild
from tests.unit.spark.jobs.audit_faults import FAULTS, SPLIT_BYTES, Planter, filled, kinds_of
from tests.unit.spark.jobs.rebuilt_files import GOLDEN, check_golden, queues
from tests.unit.store.synthetic import NOW_MS

GOLDEN_NOW_MS = 1_800_000_000_000
CHOSEN = (
    "a body has another byte",
    "the last entry is empty",
    "an entry has no record",
    "an index entry has another hash",
)


@pytest.mark.parametrize("name", ["store-binary-clean", "store-ext-crash"])
def test_java_stores_are_sound(spark: SparkSession, name: str) -> None:
    clock = ManualClock(GOLDEN_NOW_MS)
    report = audit(spark, str(GOLDEN / name), split_bytes=8192, clock=clock)
    assert report.findings == []
    assert report.numbers["records"] == report.numbers["entries"]


def test_planted_faults(spark: SparkSession, tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    for name in CHOSEN:
        FAULTS[name].plant(Planter(store))
    report = audit(spark, str(store.root), split_bytes=SPLIT_BYTES, clock=ManualClock(NOW_MS))
    assert kinds_of(report) == set().union(*(FAULTS[name].kinds for name in CHOSEN))


@pytest.mark.parametrize("name", ["store-ext-clean", "store-ha-master"])
def test_rebuilt_files(spark: SparkSession, name: str, tmp_path: Path) -> None:
    rebuild(spark, str(GOLDEN / name), str(tmp_path / "new"), split_bytes=8192)
    check_golden(name, tmp_path / "new")


def test_as_commands(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(**_settings: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "open_session", opened)
    monkeypatch.setattr("roquet.spark.jobs.audit.SystemClock", lambda: ManualClock(GOLDEN_NOW_MS))
    store = Path(shutil.copytree(GOLDEN / "store-json-crash", tmp_path / "store"))

    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(roquet, ["spark", *words], catch_exceptions=False)
        return result.exit_code, result.stdout

    code, text = run("audit", str(store), "--replica", str(GOLDEN / "store-json-crash"), "--json")
    assert (code, json.loads(text)["findings"]) == (0, [])
    code, text = run("audit", str(store), "--sample", "0.5", "--json")
    assert (code, json.loads(text)["findings"]) == (0, [])
    code, _ = run("rebuild", str(store), "--out", str(tmp_path / "new"))
    assert (code, queues(tmp_path / "new")) == (0, queues(store))
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff")
    code, text = run("audit", str(store))
    assert code == 2
    assert "bad-crc" in text
