"""Work of our own on the executors of a session.

Heavy pipelines do their work where the data is and send small results back. Owns the one way in
which they are spread. It needs a session whose driver is this process; over Spark Connect, which
has nothing of the kind, it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from roquet.errors import SparkError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["driver_context", "parallelism", "run_tasks", "task_count"]

T = TypeVar("T")
R = TypeVar("R")


def driver_context(spark: SparkSession) -> SparkContext:
    """The context of a session whose driver is this process.

    Raises:
        SparkError: It is elsewhere.
    """
    try:
        return spark.sparkContext
    except AttributeError as error:
        raise SparkError(
            "This does not work over Spark Connect.",
            detail="The driver has to be this process.",
            hint="Give --master, or a session that was made without remote().",
        ) from error


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time.

    Raises:
        SparkError: The session is one of Spark Connect.
    """
    at_a_time: int = driver_context(spark).defaultParallelism
    return at_a_time


def task_count(frame: DataFrame) -> int:
    """How many tasks read a DataFrame.

    Raises:
        SparkError: Its session is one of Spark Connect.
    """
    driver_context(frame.sparkSession)
    count: int = frame.rdd.getNumPartitions()
    return count


def run_tasks(spark: SparkSession, tasks: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Do work once for each task, a Spark task each, and give the results in that order.

    Args:
        spark: The session.
        tasks: Values that can be pickled.
        work: A function or object of a module; a task may be done more than once, so what it
            writes must be the same each time.

    Raises:
        SparkError: The session is one of Spark Connect.
    """
    context = driver_context(spark)
    if not tasks:
        return []
    done: list[R] = context.parallelize(tasks, len(tasks)).map(work).collect()
    return done
