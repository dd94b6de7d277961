"""What surrounds the start of Spark: formats that are known, and Ctrl-C."""

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceRegistration

import roquet.spark
from tests.spark.stages import driver

STORE = Path(__file__).parents[1] / "golden" / "data" / "store-json-clean"


def test_a_format_that_is_known_is_not_registered_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would warn that the second replaced the first."""

    def refuse(_self: DataSourceRegistration, data_source: type[DataSource]) -> None:
        raise AssertionError(data_source.name())

    monkeypatch.setattr(DataSourceRegistration, "register", refuse)
    roquet.spark.register(spark)
    # It is known in other sessions of the same Spark only after a registration of their own, or
    # where Roquet is installed: nobody has to know which.
    monkeypatch.undo()
    other = spark.newSession()
    roquet.spark.register(other)
    assert other.read.format("rocketmq-log").load(str(STORE)).columns


def is_spark(pid: int) -> bool:
    """Whether a process is Spark's JVM."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"java") and b"org.apache.spark.deploy.SparkSubmit" in words


def session_of(pid: int) -> int:
    """The session that a process belongs to; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[3])


def test_a_signal_while_spark_starts_ends_all_of_it(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # its fixture skips where there is no Java
    with driver(tmp_path, "roquet", ["spark", "stats", str(STORE)]) as started:
        own = started.process.pid

        def javas() -> list[int]:
            pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
            return [pid for pid in pids if session_of(pid) == own and is_spark(pid)]

        started.wait_until(lambda: bool(javas()))
        assert started.end(signal.SIGINT) == 130
        assert javas() == []
        assert started.errors == "Ended by SIGINT before it was done.\n"
