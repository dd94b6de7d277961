"""The lake holds what the log holds, once, whatever came between."""

import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.errors import SparkOptionError
from roquet.spark.jobs import lake_files
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lake import Lake
from tests.unit.spark.jobs.lake_kit import BROKER, GOLDEN, lake_rows, log_rows, run
from tests.unit.spark.log.kit import mixed_messages, stored_rows, write_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", mixed_messages(300), step_ms=600_000)
    return tmp_path / "store"


def test_a_java_store(tmp_path: Path) -> None:
    report = run(GOLDEN, tmp_path / "lake", decompress=False)
    assert lake_rows(tmp_path / "lake") == log_rows(GOLDEN)
    assert report.numbers["messages"] == len(log_rows(GOLDEN))
    assert not report.findings


def test_ranges_follow_each_other_and_runs_repeat(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    first = run(store, lake)
    manifests = Lake(str(lake)).manifests(BROKER)
    assert len(manifests) == first.numbers["ranges"]
    assert len(manifests) > 3
    for before, after in pairwise(manifests):
        assert (before.stop, before.is_complete) == (after.start, True)
    assert sum(each.rows for each in manifests) == len(lake_rows(lake))
    files = {path: path.stat().st_mtime_ns for path in lake.rglob("*.parquet")}
    again = run(store, lake)
    assert again.numbers["ranges"] == 1
    assert lake_rows(lake) == log_rows(store)
    assert {path for path in lake.rglob("*") if path.suffix == ".tmp"} == set()
    assert len([path for path in files if path.stat().st_mtime_ns == files[path]]) > 3


def test_a_log_that_grows(tmp_path: Path) -> None:
    whole, part, lake = tmp_path / "whole", tmp_path / "part", tmp_path / "lake"
    messages = mixed_messages(240)
    write_store(whole, messages, step_ms=60_000)
    for count in (1, 50, 51, 130, 240):
        shutil.rmtree(part, ignore_errors=True)
        write_store(part, messages[:count], step_ms=60_000)
        run(part, lake)
        assert lake_rows(lake) == log_rows(part), count
    assert lake_rows(lake) == log_rows(whole)


def test_a_task_that_runs_twice_at_a_time_writes_two_files(tmp_path: Path) -> None:
    rows = pa.table({"x": range(1000)})
    place = Lake(str(tmp_path))
    first, second = (place.new_file("topic=T/a.parquet", "run") for _ in range(2))
    with pq.ParquetWriter(first.hidden, rows.schema, filesystem=first.filesystem) as writer:
        writer.write_table(rows)
        with second.filesystem.open_output_stream(second.hidden) as begun:
            begun.write(b"PAR1")
    first.publish()
    first.discard()
    assert pq.ParquetFile(tmp_path / "topic=T" / "a.parquet").read() == rows
    assert len(list((tmp_path / "topic=T").iterdir())) == 2
    place.sweep("run")
    assert [path.name for path in (tmp_path / "topic=T").iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("uploading", ["s3", ""])
def test_a_file_that_failed_leaves_nothing(
    uploading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "_UPLOADING", frozenset({uploading}))
    file = Lake(str(tmp_path)).new_file("a.parquet", "run")
    with file.filesystem.open_output_stream(file.hidden) as begun:
        begun.write(b"PAR1")
    assert Path(file.hidden).exists()
    file.discard()
    assert not Path(file.hidden).exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:a/secret@lake/x",
        "s3://key:a secret@lake/x",
        "gs://key:secret@",
        "s3a://k:1/secret@b",
    ],
)
def test_an_invalid_address_does_not_tell_its_password(address: str) -> None:
    with pytest.raises(SparkOptionError) as failed:
        Lake(address)
    assert "secret" not in f"{failed.value}{failed.value.detail}"


def test_addresses_with_an_at_sign_in_their_path() -> None:
    for address in ("s3://lake/a@b", "hdfs://namenode:8020/a@b", "file:///a:b@c/d", "/a:b@c"):
        assert lake_files.public_address(address) == address
    assert lake_files.public_address("s3://key:secret@lake/a@b") == "s3://lake/a@b"


def test_a_run_that_was_killed_is_repaired(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(store, lake)
    manifests = sorted((lake / "_manifest" / BROKER).glob("0*.json"))
    for killed in manifests[2:]:
        killed.unlink()
    victim = next(lake.rglob("part-*.parquet"))
    (victim.parent / f".{victim.name}.tmp").write_bytes(b"half a file")
    run(store, lake)
    assert lake_rows(lake) == log_rows(store)


def test_what_is_asked_for_is_fixed(store: Path, tmp_path: Path) -> None:
    topics = sorted({topic for topic, _, _ in log_rows(store).values()})
    lake = tmp_path / "lake"
    run(store, lake, wanted=Wanted(topics=topics[:1]))
    expected = {at: row for at, row in log_rows(store).items() if row[0] == topics[0]}
    assert lake_rows(lake) == expected
    with pytest.raises(SparkOptionError, match="other messages"):
        run(store, lake)
    with pytest.raises(SparkOptionError, match="not a supported compression"):
        run(store, lake, compression="rar")


def test_a_dry_run_writes_nothing(store: Path, tmp_path: Path) -> None:
    report = run(store, tmp_path / "lake", is_dry_run=True)
    assert not (tmp_path / "lake").exists()
    assert report.numbers["bytesToRead"]


def test_damage_is_a_finding_and_not_a_row(store: Path, tmp_path: Path) -> None:
    victim = sorted(log_rows(store))[10]
    expected = log_rows(store)
    segment = min((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[victim + 4 : victim + 8] = bytes(4)
    segment.write_bytes(data)
    report = run(store, tmp_path / "lake")
    del expected[victim]
    assert lake_rows(tmp_path / "lake") == expected
    (finding,) = report.findings
    assert (finding.kind, finding.where) == ("damaged", f"physical offset {victim}")


def test_a_log_that_lost_its_head(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write_store(store, mixed_messages(400), step_ms=1000)
    segments = sorted((store / "commitlog").iterdir())
    assert len(segments) > 2
    run(store, lake, wanted=Wanted(to_ms=first_time(store) + 10_000))
    for segment in segments[:-1]:
        segment.unlink()
    report = run(store, lake)
    (finding,) = report.findings
    assert finding.kind == "lost"
    assert log_rows(store).items() <= lake_rows(lake).items()


def first_time(store: Path) -> int:
    return min(int(row["storeTimestamp"]) for row in stored_rows(store)) // 1000
