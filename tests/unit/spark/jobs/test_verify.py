"""Every way in which a lake can differ from its log is found, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.errors import SparkOptionError
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.verify import verify
from roquet.spark.report import Report
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.log.kit import mixed_messages, write_store

BROKER = "a/b"
RANGE_BYTES = 16 << 10


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", mixed_messages(200), step_ms=600_000)
    return tmp_path / "store"


@pytest.fixture
def lake(store: Path, tmp_path: Path) -> Path:
    archive(HERE, str(store), str(tmp_path / "lake"), broker_name=BROKER, range_bytes=RANGE_BYTES)
    return tmp_path / "lake"


def check(store: Path | None, lake: Path, *, bodies: bool = False) -> Report:
    text = None if store is None else str(store)
    return verify(HERE, text, str(lake), broker_name=BROKER, check_bodies=bodies)


def parts(lake: Path) -> list[Path]:
    return sorted(lake.rglob("part-*.parquet"))


def test_a_good_lake(store: Path, lake: Path) -> None:
    report = check(store, lake, bodies=True)
    assert report.findings == []
    assert (report.numbers["messages"], report.numbers["rangesInLog"]) == (
        200,
        report.numbers["ranges"],
    )
    assert check(None, lake).numbers["rangesInLog"] == 0


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def changed(table: pa.Table, name: str, value: object) -> pa.Table:
    column = table.column(name).to_pylist()
    column[0] = value
    at = table.schema.get_field_index(name)
    return table.set_column(
        at, table.schema.field(at), pa.array(column, table.schema.field(at).type)
    )


FAULTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a file is gone": ("missing", lambda lake: parts(lake)[0].unlink()),
    "a file is cut": (
        "different",
        lambda lake: parts(lake)[0].write_bytes(parts(lake)[0].read_bytes()[:-20]),
    ),
    "a row is gone": ("different", lambda lake: rewrite(parts(lake)[0], lambda t: t.slice(1))),
    "a checksum is another": (
        "different",
        lambda lake: rewrite(parts(lake)[0], lambda t: changed(t, "bodyCrc", 5)),
    ),
    "a row is of another place": (
        "different",
        lambda lake: rewrite(parts(lake)[0], lambda t: changed(t, "physicalOffset", 5)),
    ),
    "a body is another": (
        "bad-body",
        lambda lake: rewrite(parts(lake)[-1], lambda t: changed(t, "body", b"no")),
    ),
    "a file is strange": (
        "unknown",
        lambda lake: (lake / "part-a%2Fb-00000000000000099999.parquet").write_bytes(b""),
    ),
    "a range is gone": (
        "gap",
        lambda lake: sorted((lake / "_manifest" / "a%2Fb").glob("0*.json"))[1].unlink(),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_found(store: Path, lake: Path, name: str) -> None:
    kind, plant = FAULTS[name]
    plant(lake)
    found = check(store, lake, bodies=kind == "bad-body").findings
    assert kind in {each.kind for each in found}
    assert {each.kind for each in found} <= {kind, "unknown"}


def test_files_of_other_brokers_are_not_looked_at(store: Path, lake: Path) -> None:
    (lake / "part-other-00000000000000000000.parquet").write_bytes(b"")
    assert check(store, lake).findings == []
    with pytest.raises(SparkOptionError, match="holds nothing"):
        verify(HERE, None, str(lake), broker_name="nobody")
