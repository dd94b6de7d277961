"""A query passes the functions that docs/internals/log-to-rows.md names, in that order."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.spark.log.log_options import read_log_options
from roquet.spark.log.source import RocketMQLogReader
from roquet.spark.schema import arrow_schema, struct_type
from tests.page_steps import Way, steps_of
from tests.unit.spark.log.kit import mixed_messages, write_store

PAGE = "log-to-rows.md"
MAGIC_AT = 4


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RocketMQLogReader:
    """A reader of a log whose first record is damaged."""
    monkeypatch.setenv("ROQUET_PURE", "1")
    write_store(tmp_path, mixed_messages(20))
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(MAGIC_AT)
        file.write(bytes(4))
    return RocketMQLogReader(read_log_options({"path": str(tmp_path)}), arrow_schema(struct_type()))


def test_the_driver_takes_the_steps_of_the_page(reader: RocketMQLogReader) -> None:
    steps, way = steps_of(PAGE, "On the driver"), Way()
    with way.followed():
        reader.partitions()
    assert steps
    assert way.along(steps) == steps


def test_an_executor_takes_the_steps_of_the_page(reader: RocketMQLogReader) -> None:
    steps, way = steps_of(PAGE, "On an executor"), Way()
    (task,) = reader.partitions()
    with way.followed():
        batches = list(reader.read(task))
    assert sum(batch.num_rows for batch in batches) == 20
    assert steps
    assert way.along(steps) == steps
