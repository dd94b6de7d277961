"""What readers see of a folder of Parquet files while it is written."""

from __future__ import annotations

from pathlib import Path
from typing import cast
from unittest.mock import MagicMock

from pyspark.sql import DataFrame

from roquet.spark.lake.parquet_sink import write_parquet


def test_a_result_that_is_being_replaced_is_not_marked_as_whole(tmp_path: Path) -> None:
    seen: list[set[str]] = []

    def names() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    def save(_address: str) -> None:
        (tmp_path / "part-2.parquet").touch()
        seen.append(names())

    frame = MagicMock()
    frame.write.format().option().mode().save = save
    for name in ("part-1.parquet", "_SUCCESS"):
        (tmp_path / name).touch()
    write_parquet(cast("DataFrame", frame), str(tmp_path), is_overwrite=True)
    assert seen == [{"part-1.parquet", "part-2.parquet"}]
    assert names() == {"part-2.parquet", "_SUCCESS"}
