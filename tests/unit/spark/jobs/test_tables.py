"""Delta and Iceberg tables hold what the log holds, once, whatever came between."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from roquet.errors import SparkError, SparkMissing, SparkOptionError
from roquet.spark.jobs import table_archive, tables
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.follow import follow
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.table_archive import archive_table
from roquet.spark.jobs.table_verify import verify_table
from roquet.spark.jobs.tables import open_table
from roquet.spark.jobs.tier import tier
from roquet.spark.jobs.verify import verify
from roquet.spark.report import Report
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import GOLDEN, log_rows
from tests.unit.spark.log.kit import mixed_messages, write_store

BROKER = "broker-a"
FORMATS = ["delta", "iceberg"]


@pytest.fixture
def lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By format: the address of a table that is not there yet."""
    (tmp_path / "warehouse").mkdir()
    prefix = "PYICEBERG_CATALOG__LAKES__"
    monkeypatch.setenv(f"{prefix}TYPE", "sql")
    monkeypatch.setenv(f"{prefix}URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv(f"{prefix}WAREHOUSE", f"file://{tmp_path}/warehouse")
    # It reads the environment once, when it is imported.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return {"delta": str(tmp_path / "delta"), "iceberg": "lakes.shop.messages"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", mixed_messages(300), step_ms=600_000)
    return tmp_path / "store"


def run(store: Path, lake: str, lake_format: str, **more: object) -> Report:
    given: dict[str, object] = {"broker_name": BROKER, "range_bytes": 8 << 10, **more}
    return archive_table(HERE, str(store), lake, lake_format, **given)  # type: ignore[arg-type]


def check(store: Path | None, lake: str, lake_format: str) -> Report:
    where = None if store is None else str(store)
    return verify_table(HERE, where, lake, lake_format, broker_name=BROKER, check_bodies=True)


def delta_rows(lake: str) -> pa.Table:
    return DeltaTable(lake).to_pyarrow_table()


def iceberg_rows(lake: str) -> pa.Table:
    catalog, _, name = lake.partition(".")
    return load_catalog(catalog).load_table(name).scan().to_arrow()


READERS: dict[str, Callable[[str], pa.Table]] = {"delta": delta_rows, "iceberg": iceberg_rows}


def table_rows(lake: str, lake_format: str) -> dict[int, tuple[str, bytes, str]]:
    """As the format's own reader gives them; a message that is there twice fails."""
    rows: dict[int, tuple[str, bytes, str]] = {}
    for row in READERS[lake_format](lake).to_pylist():
        assert row["physicalOffset"] not in rows, "a message is there again"
        assert row["brokerName"] == BROKER
        rows[row["physicalOffset"]] = (row["topic"], row["body"], f"day={row['day']}")
    return rows


@pytest.mark.parametrize("lake_format", FORMATS)
def test_a_java_store(lake_format: str, lakes: dict[str, str]) -> None:
    lake = lakes[lake_format]
    report = run(GOLDEN, lake, lake_format, decompress=False)
    assert table_rows(lake, lake_format) == log_rows(GOLDEN)
    assert report.numbers["messages"] == len(log_rows(GOLDEN))
    assert check(GOLDEN, lake, lake_format).findings == []


@pytest.mark.parametrize("lake_format", FORMATS)
def test_a_log_that_grows(
    lake_format: str, lakes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_archive, "RANGES_PER_COMMIT", 2)
    lake, part, messages = lakes[lake_format], tmp_path / "part", mixed_messages(240)
    for count in (1, 50, 50, 51, 240):
        shutil.rmtree(part, ignore_errors=True)
        write_store(part, messages[:count], step_ms=60_000)
        before = len(table_rows(lake, lake_format)) if count > 1 else 0
        report = run(part, lake, lake_format)
        assert report.numbers["newMessages"] == len(log_rows(part)) - before
        assert table_rows(lake, lake_format) == log_rows(part), count
    assert check(part, lake, lake_format).findings == []
    assert run(part, lake, lake_format, is_dry_run=True).numbers["ranges"] == 0


@pytest.mark.parametrize("lake_format", FORMATS)
def test_a_run_that_was_killed_before_its_commit(
    lake_format: str, lakes: dict[str, str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lakes[lake_format]
    table = open_table(lake_format, lake)
    monkeypatch.setattr(table_archive, "RANGES_PER_COMMIT", 3)
    commit, commits = type(table).commit, []

    def killed(*args: object) -> None:
        commits.append(args)
        if len(commits) == 2:
            raise KeyboardInterrupt
        commit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(type(table), "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        run(store, lake, lake_format)
    assert 0 < len(table_rows(lake, lake_format)) < len(log_rows(store))
    run(store, lake, lake_format)
    assert table_rows(lake, lake_format) == log_rows(store)


@pytest.mark.parametrize("lake_format", FORMATS)
def test_of_two_runs_at_once_one_fails(
    lake_format: str, lakes: dict[str, str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lakes[lake_format]
    run(store, lake, lake_format, wanted=Wanted(to_ms=0))
    kind: Any = type(open_table(lake_format, lake))
    original = kind._open

    def late(self: object) -> object:
        """The table as it was before the other run's commit, which comes now."""
        opened = original(self)
        monkeypatch.setattr(kind, "_open", original)
        run(store, lake, lake_format)
        return opened

    commit = kind.commit

    def overtaken(self: object, *args: object) -> None:
        monkeypatch.setattr(kind, "commit", commit)
        monkeypatch.setattr(kind, "_open", late)
        commit(self, *args)

    monkeypatch.setattr(kind, "commit", overtaken)
    with pytest.raises(SparkError, match="came first"):
        run(store, lake, lake_format)
    assert table_rows(lake, lake_format) == log_rows(store)


@pytest.mark.parametrize("lake_format", FORMATS)
def test_an_overtaken_run_adds_nothing(
    lake_format: str, lakes: dict[str, str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is done before this one looks at the table again, and had other ranges."""
    lake = lakes[lake_format]
    kind: Any = type(open_table(lake_format, lake))
    commit = kind.commit

    def overtaken(self: object, *args: object) -> None:
        monkeypatch.setattr(kind, "commit", commit)
        run(store, lake, lake_format, range_bytes=3 << 10)
        commit(self, *args)

    monkeypatch.setattr(kind, "commit", overtaken)
    with pytest.raises(SparkError, match="came first"):
        run(store, lake, lake_format)
    assert table_rows(lake, lake_format) == log_rows(store)
    assert check(store, lake, lake_format).findings == []


@pytest.mark.parametrize("lake_format", FORMATS)
def test_what_is_asked_for_is_fixed(lake_format: str, lakes: dict[str, str], store: Path) -> None:
    lake = lakes[lake_format]
    topics = sorted({topic for topic, _, _ in log_rows(store).values()})
    run(store, lake, lake_format, wanted=Wanted(topics=topics[:1]))
    expected = {at: row for at, row in log_rows(store).items() if row[0] == topics[0]}
    assert table_rows(lake, lake_format) == expected
    assert check(store, lake, lake_format).findings == []
    with pytest.raises(SparkOptionError, match="other messages"):
        run(store, lake, lake_format)
    with pytest.raises(SparkOptionError, match="holds nothing of 'other'"):
        verify_table(HERE, str(store), lake, lake_format, broker_name="other")


@pytest.mark.parametrize("lake_format", FORMATS)
def test_what_is_wrong_is_found(lake_format: str, lakes: dict[str, str], store: Path) -> None:
    lake = lakes[lake_format]
    run(store, lake, lake_format)
    table = open_table(lake_format, lake)
    first, second, third = sorted(each.path for each in table.files())[:3]
    Path(table.place.path(first)).unlink()
    rows = pq.ParquetFile(table.place.path(second)).read()
    pq.write_table(rows.slice(1), table.place.path(second))
    Path(table.place.path(third)).write_bytes(b"no Parquet")
    found = check(store, lake, lake_format).findings
    assert {("missing", first), ("different", third)} <= {(each.kind, each.where) for each in found}
    lost = [each for each in found if each.where not in {first, third}]
    assert {each.kind for each in lost} == {"missing"}
    assert [each.where for each in check(None, lake, lake_format).findings] == [first, third]


def test_a_table_whose_files_were_rewritten(lakes: dict[str, str], store: Path) -> None:
    run(store, lakes["delta"], "delta")
    metrics = DeltaTable(lakes["delta"]).optimize.compact()
    assert metrics["numFilesRemoved"] > metrics["numFilesAdded"]
    assert table_rows(lakes["delta"], "delta") == log_rows(store)
    assert check(store, lakes["delta"], "delta").findings == []
    assert run(store, lakes["delta"], "delta").numbers["newMessages"] == 0


@pytest.mark.parametrize("lake_format", FORMATS)
def test_following(lake_format: str, lakes: dict[str, str], tmp_path: Path) -> None:
    store, messages = tmp_path / "store", mixed_messages(90)
    write_store(store, messages[:30], step_ms=60_000)
    counts = [60, 60, 90]

    class Rounds(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            del timeout
            if not counts:
                return True
            shutil.rmtree(store)
            write_store(store, messages[: counts.pop(0)], step_ms=60_000)
            return False

    report = follow(
        HERE,
        str(store),
        lakes[lake_format],
        stopping=Rounds(),
        broker_name=BROKER,
        lake_format=lake_format,
    )
    assert table_rows(lakes[lake_format], lake_format) == log_rows(store)
    assert report.numbers["rounds"] == 3
    assert report.numbers["newMessages"] == len(log_rows(store))


def test_lakes_and_tables_stay_apart(lakes: dict[str, str], store: Path, tmp_path: Path) -> None:
    run(store, lakes["delta"], "delta")
    with pytest.raises(SparkOptionError, match="is a Delta table"):
        archive(HERE, str(store), lakes["delta"], broker_name=BROKER)
    for job in (verify, tier):
        with pytest.raises(SparkOptionError, match="It is a Delta table"):
            job(HERE, str(store), lakes["delta"], broker_name=BROKER)
    archive(HERE, str(store), str(tmp_path / "lake"), broker_name=BROKER)
    with pytest.raises(SparkOptionError, match="no Delta table"):
        run(store, str(tmp_path / "lake"), "delta")


def test_what_cannot_be_a_table(
    lakes: dict[str, str], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SparkOptionError, match="not a supported table format"):
        run(store, lakes["delta"], "hudi")
    for name in ("messages", "lakes.messages", "/data/messages", "s3://bucket/a.b.c"):
        with pytest.raises(SparkOptionError, match="not the name of an Iceberg table"):
            run(store, name, "iceberg")
    with pytest.raises(SparkOptionError, match="'nobody' is not known"):
        run(store, "nobody.shop.messages", "iceberg")
    for lake_format in FORMATS:
        with pytest.raises(SparkOptionError, match="There is no"):
            verify_table(HERE, str(store), lakes[lake_format], lake_format)
    missing = ("roquet.spark.jobs.no_such_module", "Table", "deltalake")
    monkeypatch.setitem(tables.TABLE_FORMATS, "delta", missing)
    with pytest.raises(SparkMissing, match="need the package deltalake") as caught:
        run(store, lakes["delta"], "delta")
    assert "roquet[delta]" in str(caught.value)
