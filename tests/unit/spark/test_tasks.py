"""Work on executors: in order, and refused in a sentence where there is no driver of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import PySparkAttributeError

from roquet.errors import SparkError
from roquet.spark import register
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.audit import audit
from roquet.spark.tasks import parallelism, run_tasks, task_count
from tests.unit.spark.jobs.kit import HERE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOLDEN = Path(__file__).parents[2] / "golden" / "data"


class _Remote:
    """A session and a DataFrame over Spark Connect, as far as it matters here."""

    def __getattr__(self, name: str) -> object:
        attribute = {"attr_name": name}
        raise PySparkAttributeError("JVM_ATTRIBUTE_NOT_SUPPORTED", attribute)

    @property
    def sparkSession(self) -> _Remote:  # noqa: N802 - Spark's name
        return self


REMOTE = cast("SparkSession", _Remote())


def test_results_come_in_the_order_of_tasks() -> None:
    assert run_tasks(HERE, [3, 1, 2], str) == ["3", "1", "2"]
    assert run_tasks(HERE, [], str) == []
    assert parallelism(HERE) == 2


@pytest.mark.parametrize(
    "work",
    [
        lambda: run_tasks(REMOTE, [1], str),
        lambda: run_tasks(REMOTE, [], str),
        lambda: parallelism(REMOTE),
        lambda: task_count(cast("DataFrame", REMOTE)),
        lambda: audit(REMOTE, str(GOLDEN / "store-json-clean")),
    ],
)
def test_a_session_over_connect_is_refused(work: Callable[[], object]) -> None:
    with pytest.raises(SparkError, match="does not work over Spark Connect") as caught:
        work()
    assert "--master" in (caught.value.hint or "")


def test_an_archive_over_connect_leaves_nothing(tmp_path: Path) -> None:
    store, lake = str(GOLDEN / "store-json-clean"), tmp_path / "lake"
    with pytest.raises(SparkError, match="does not work over Spark Connect"):
        archive(REMOTE, store, str(lake))
    assert not lake.exists()
    assert archive(REMOTE, store, str(lake), is_dry_run=True).numbers["ranges"] == 1


def test_a_session_over_connect_is_left_as_it_is() -> None:
    register(REMOTE)  # would fail with any attribute that it uses
