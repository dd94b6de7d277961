"""Runs our own work on the executors of a session.

Heavy pipelines work where the data is and send small results back. This is the only way they
distribute tasks. With a driver in this process the tasks are Spark's own; over Spark Connect each
is a row of a DataFrame, and the server's workers need the same Roquet.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from roquet import errors
from roquet.errors import RoquetError, SparkError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "driver_context",
    "is_remote",
    "parallelism",
    "run_tasks",
    "task_count",
    "task_error",
]

_OURS = re.compile(
    r"^roquet\.errors\.(?P<kind>\w+): (?P<message>.*)"
    r"(?:\nDETAIL: (?P<detail>.*))?(?:\nHINT: (?P<hint>.*))?",
    re.MULTILINE,
)

T = TypeVar("T")
R = TypeVar("R")


_DONE = pa.schema([("at", pa.int64()), ("done", pa.binary())])
_MANY = 1 << 20


def is_remote(spark: SparkSession) -> bool:
    """Whether a session uses Spark Connect, so that its driver is another process."""
    return not hasattr(spark, "sparkContext")


def driver_context(spark: SparkSession) -> SparkContext:
    """Return the context of a session whose driver is this process.

    Raises:
        SparkError: The driver is another process.
    """
    if is_remote(spark):
        raise SparkError(
            "This does not work over Spark Connect.",
            detail="The driver has to be this process.",
            hint="Use --master, or a session that was created without remote().",
        )
    return spark.sparkContext


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks run at a time."""
    if is_remote(spark):
        # A range has as many parts as the server runs tasks at a time.
        parts: int = spark.range(_MANY).select(f.spark_partition_id()).distinct().count()
        return parts
    at_a_time: int = driver_context(spark).defaultParallelism
    return at_a_time


def task_count(frame: DataFrame) -> int:
    """Return how many tasks read a DataFrame.

    Raises:
        SparkError: Its session uses Spark Connect.
    """
    if is_remote(frame.sparkSession):
        raise SparkError(
            "Spark Connect does not tell how many tasks a query has.",
            hint="Run it without is_dry_run, or with --master.",
        )
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
        RoquetError: A task failed with this error.
    """
    if not tasks:
        return []
    with _told_by_tasks():
        if is_remote(spark):
            return _run_remotely(spark, tasks, work)
        done: list[R] = driver_context(spark).parallelize(tasks, len(tasks)).map(work).collect()
    return done


def _run_remotely(spark: SparkSession, tasks: Sequence[T], work: Callable[[T], R]) -> list[R]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                done = pickle.dumps(work(tasks[at]))
                yield pa.RecordBatch.from_pydict({"at": [at], "done": [done]}, schema=_DONE)

    rows = (
        spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "at long, done binary").collect()
    )
    # Results are pickled as Spark itself pickles those of tasks: they come from our own work.
    found = {row["at"]: pickle.loads(row["done"]) for row in rows}  # noqa: S301
    return [found[at] for at in range(len(tasks))]


@contextmanager
def _told_by_tasks() -> Iterator[None]:
    """Raise an error of ours that ended a task, which Spark reports as text with stacks.

    Raises:
        RoquetError: A task failed with it.
    """
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
