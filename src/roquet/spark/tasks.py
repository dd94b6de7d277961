"""Work of our own on the executors of a session.

Heavy pipelines do their work where the data is and send small results back. Owns the one way in
which they are spread; it needs a session whose driver is this process, not Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_tasks"]

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, tasks: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Do work once for each task, a Spark task each, and give the results in that order.

    Args:
        spark: The session.
        tasks: Values that can be pickled.
        work: A function or object of a module; a task may be done more than once, so what it
            writes must be the same each time.
    """
    if not tasks:
        return []
    done: list[R] = spark.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
    return done
