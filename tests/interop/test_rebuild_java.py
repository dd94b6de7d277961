"""Queues, their extension and index that Spark makes are those that a Java broker makes of a log.

The stores of which the golden files hold more than the log tells (see
``tests/unit/spark/jobs/rebuilt_files.py``) lose all derived files here; a Java broker then
rebuilds them from the same log, in one life.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roquet.spark.jobs.rebuild import rebuild
from tests.interop.oracle import JAVA_CONFIG, JavaOracle
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.rebuilt_files import GOLDEN, extensions, index, queues

# The first run on a machine downloads the jars within a test's setup.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

INDEX_ENTRIES = 1000
"""So many fit a file that Java makes only one: it may write over the first of two that it makes
within a millisecond."""

EXT: dict[str, str | int] = {
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "enablePropertyFilter": "true",
    "mappedFileSizeConsumeQueueExt": 4096,
    "filterDataCleanTimeSpan": 1 << 60,
}
DERIVED = ("consumequeue", "consumequeue_ext", "index")
LOG_FILE = f"commitlog/{0:020d}"


@pytest.mark.parametrize("name", ["store-json-clean", "store-ext-clean"])
def test_java_makes_the_same_files(java: JavaOracle, tmp_path: Path, name: str) -> None:
    golden, store = GOLDEN / name, tmp_path / name
    shutil.copytree(golden, store, copy_function=shutil.copyfile)
    for part in DERIVED:
        shutil.rmtree(store / part, ignore_errors=True)
    config = {**JAVA_CONFIG, "maxIndexNum": INDEX_ENTRIES, **(EXT if "-ext-" in name else {})}
    with java.broker(store, config) as broker:
        broker.stop()

    # Spark is given the old files and Java's log, which may have grown meanwhile.
    source, new = tmp_path / "source", tmp_path / "new"
    shutil.copytree(golden, source, ignore=shutil.ignore_patterns("commitlog"))
    shutil.copytree(store / "commitlog", source / "commitlog")
    old = (golden / LOG_FILE).read_bytes().rstrip(b"\0")
    assert (store / LOG_FILE).read_bytes().startswith(old)
    report = rebuild(HERE, str(source), str(new), index_entries=INDEX_ENTRIES, split_bytes=8192)
    assert report.findings == []
    assert queues(store) == queues(new)
    assert extensions(store) == extensions(new)
    assert bool(extensions(new)) == ("-ext-" in name)
    assert index(store) == index(new)
