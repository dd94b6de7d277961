"""Delta and Iceberg tables by the commands, read by Spark together with the log."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from roquet.cli.main import roquet
from roquet.errors import SparkError
from roquet.spark import session
from roquet.spark.jobs.inputs import read_log
from roquet.spark.jobs.table_archive import read_table, tiered_table
from roquet.spark.schema import COLUMNS
from tests.unit.spark.log.kit import mixed_messages, write_store

PLAIN = [name for name in COLUMNS if name != "properties"]


def command(*words: str) -> dict[str, int]:
    done = CliRunner().invoke(roquet, ["spark", *words, "--broker-name", "a", "--json"])
    assert done.exit_code == 0, done.output
    numbers: dict[str, int] = json.loads(done.output)["numbers"]
    return numbers


@pytest.mark.parametrize("lake_format", ["delta", "iceberg"])
def test_table_and_log_are_one(
    lake_format: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def shared(**_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(session, "open_session", shared)
    (tmp_path / "warehouse").mkdir()
    prefix = "PYICEBERG_CATALOG__LAKES__"
    monkeypatch.setenv(f"{prefix}TYPE", "sql")
    monkeypatch.setenv(f"{prefix}URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv(f"{prefix}WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    lake = str(tmp_path / "delta") if lake_format == "delta" else "lakes.shop.messages"
    store, messages = tmp_path / "store", mixed_messages(200)
    for count in (80, 120):
        shutil.rmtree(store, ignore_errors=True)
        write_store(store, messages[:count], step_ms=600_000)
        command("archive", str(store), "--lake", lake, "--format", lake_format)
    checked = command("verify", str(store), "--lake", lake, "--format", lake_format, "--bodies")
    assert checked["messages"] == checked["messagesInLog"] == 120
    in_table = read_table(spark, lake, lake_format)
    log = read_log(spark, str(store), brokerName="a")
    columns = ["properties", *PLAIN]
    assert (
        in_table.select(columns).orderBy("physicalOffset").collect()
        == log.select(columns).orderBy("physicalOffset").collect()
    )
    shutil.rmtree(store)
    write_store(store, messages, step_ms=600_000)
    both = tiered_table(spark, str(store), lake, lake_format, broker_name="a")
    log = read_log(spark, str(store), brokerName="a")
    assert (
        both.select(columns).orderBy("physicalOffset").collect()
        == log.select(columns).orderBy("physicalOffset").collect()
    )
    for segment in sorted((store / "commitlog").iterdir())[:-1]:
        segment.unlink()
    with pytest.raises(SparkError, match="messages are missing"):
        tiered_table(spark, str(store), lake, lake_format, broker_name="a")
