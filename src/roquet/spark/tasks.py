"""Runs our own work on the executors of a session.

Heavy pipelines work where the data is and send small results back. This is the only way they
distribute tasks. It needs a session whose driver is this process, and raises over Spark Connect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from roquet import errors
from roquet.errors import RoquetError, SparkError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["driver_context", "parallelism", "run_tasks", "task_count", "task_error"]

_OURS = re.compile(
    r"^roquet\.errors\.(?P<kind>\w+): (?P<message>.*)"
    r"(?:\nDETAIL: (?P<detail>.*))?(?:\nHINT: (?P<hint>.*))?",
    re.MULTILINE,
)

T = TypeVar("T")
R = TypeVar("R")


def driver_context(spark: SparkSession) -> SparkContext:
    """Return the context of a session whose driver is this process.

    Raises:
        SparkError: The driver is another process.
    """
    try:
        return spark.sparkContext
    except AttributeError as error:
        raise SparkError(
            "This does not work over Spark Connect.",
            detail="The driver has to be this process.",
            hint="Use --master, or a session that was created without remote().",
        ) from error


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at a time.

    Raises:
        SparkError: The session uses Spark Connect.
    """
    at_a_time: int = driver_context(spark).defaultParallelism
    return at_a_time


def task_count(frame: DataFrame) -> int:
    """Return how many tasks read a DataFrame.

    Raises:
        SparkError: Its session uses Spark Connect.
    """
    driver_context(frame.sparkSession)
    count: int = frame.rdd.getNumPartitions()
    return count


def run_tasks(spark: SparkSession, tasks: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Run ``work`` on each task, as one Spark task each; return the results in order.

    Args:
        spark: The session.
        tasks: Picklable values.
        work: A function or object of a module. It must be idempotent: Spark may run a task more
            than once.

    Raises:
        SparkError: The session uses Spark Connect.
        RoquetError: A task failed with this error.
    """
    context = driver_context(spark)
    if not tasks:
        return []
    with _told_by_tasks():
        done: list[R] = context.parallelize(tasks, len(tasks)).map(work).collect()
    return done


@contextmanager
def _told_by_tasks() -> Iterator[None]:
    """Raise an error of ours that ended a task, which Spark reports as text with stacks.

    Raises:
        RoquetError: A task failed with it.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark is optional here

    try:
        yield
    except PySparkException as error:
        found = task_error(str(error))
        if found is None:
            raise
        raise found from None


def task_error(text: str) -> RoquetError | None:
    r"""Return the error of ours that Spark's report of a failed task ends with.

    Example:
        >>> print(task_error("Traceback:\nroquet.errors.SparkError: No lake.\nHINT: Make one."))
        No lake.
        HINT: Make one.
    """
    found = _OURS.search(text)
    if found is None:
        return None
    kind = getattr(errors, found["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, RoquetError)):
        return None
    return kind(found["message"], detail=found["detail"], hint=found["hint"])
