"""Work on executors, with a driver of ours and over Connect: results come in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkAttributeError

from roquet.errors import SparkError
from roquet.spark import register
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.verify import verify
from roquet.spark.tasks import parallelism, run_tasks, task_count
from tests.unit.spark.jobs.kit import HERE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

GOLDEN = Path(__file__).parents[2] / "golden" / "data"


class _Remote:
    """A session and a DataFrame over Spark Connect, as far as it matters here."""

    def __init__(self, numbers: Sequence[int] = ()) -> None:
        self._numbers = numbers
        self._done: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> object:
        attribute = {"attr_name": name}
        raise PySparkAttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED", attribute)

    @property
    def sparkSession(self) -> _Remote:  # noqa: N802 - Spark's name
        return self

    def range(self, start: int, end: int, step: int, parts: int) -> _Remote:
        assert parts == end
        return _Remote(range(start, end, step))

    def mapInArrow(self, run: Batches, _schema: str) -> _Remote:  # noqa: N802 - Spark's name
        # The parts end in any order.
        for number in reversed(self._numbers):
            batch = pa.RecordBatch.from_pydict({"id": [number]})
            self._done += [row for done in run([batch]) for row in done.to_pylist()]
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self._done


REMOTE = cast("SparkSession", _Remote())


def test_results_come_in_the_order_of_tasks() -> None:
    assert run_tasks(HERE, [3, 1, 2], str) == ["3", "1", "2"]
    assert run_tasks(HERE, [], str) == []
    assert parallelism(HERE) == 2


def test_tasks_run_over_connect_too(tmp_path: Path) -> None:
    assert run_tasks(REMOTE, [3, 1, 2], str) == ["3", "1", "2"]
    assert run_tasks(REMOTE, [], str) == []
    store, lake = str(GOLDEN / "store-json-clean"), tmp_path / "lake"
    messages = archive(REMOTE, store, str(lake)).numbers["messages"]
    assert messages == archive(HERE, store, str(tmp_path / "other")).numbers["messages"]
    assert not verify(REMOTE, store, str(lake)).has_findings


def test_a_dry_run_over_connect_says_what_to_run() -> None:
    with pytest.raises(SparkError, match="does not tell how many tasks") as caught:
        task_count(cast("DataFrame", REMOTE))
    assert "--master" in (caught.value.hint or "")


def test_a_session_over_connect_is_left_as_it_is() -> None:
    register(REMOTE)  # would fail with any attribute that it uses
