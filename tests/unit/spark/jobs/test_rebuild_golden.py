"""What a rebuild makes of the stores that a Java broker left, compared byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.format.index_file import IndexHeader
from roquet.runtime.clock import stamp_of
from roquet.spark.jobs.rebuild import rebuild
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.rebuilt_files import GOLDEN, GOLDEN_STORES, SPLITS, check_golden, index


@pytest.mark.parametrize("name", GOLDEN_STORES)
@pytest.mark.parametrize("split_bytes", SPLITS)
def test_java_stores(name: str, split_bytes: int, tmp_path: Path) -> None:
    new = tmp_path / "new"
    report = rebuild(HERE, str(GOLDEN / name), str(new), split_bytes=split_bytes)
    assert report.findings == []
    check_golden(name, new)


def test_names_of_index_files(tmp_path: Path) -> None:
    """By the store time of the first record; Java's are some ms later, when it made the file."""
    store, new = GOLDEN / "store-json-crash", tmp_path / "new"
    rebuild(HERE, str(store), str(new))
    names = [path.name for path in sorted((new / "index").iterdir())]
    assert names == [stamp_of(IndexHeader.unpack(data).begin_timestamp_ms) for data in index(store)]
    java = [path.name for path in sorted((store / "index").iterdir())]
    assert all(name <= later for name, later in zip(names, java, strict=True))
