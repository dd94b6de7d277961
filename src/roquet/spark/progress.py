"""The progress of a running job.

Owns a thread that asks Spark for the tasks of all running stages. Works where the driver is this
process; over Spark Connect there is no progress.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Tell", "watched"]

Tell = Callable[[int, int], None]
"""Called with the number of finished tasks and of all tasks so far."""

INTERVAL_S = 0.2


class _Watcher:
    """Adds up the tasks of every stage seen so far."""

    def __init__(self, spark: SparkSession, tell: Tell) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._tell = tell
        self._stages: dict[int, tuple[int, int]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roquet-spark-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            self.look()

    def look(self) -> None:
        """Query Spark once and report."""
        active = set(self._tracker.getActiveStageIds())
        for stage_id in active | self._stages.keys():
            info = self._tracker.getStageInfo(stage_id)
            if info is not None:
                self._stages[stage_id] = (info.numCompletedTasks, info.numTasks)
            elif stage_id not in active:
                # Spark forgets old stages; a forgotten one has ended.
                _, tasks = self._stages[stage_id]
                self._stages[stage_id] = (tasks, tasks)
        done = sum(done for done, _ in self._stages.values())
        total = sum(total for _, total in self._stages.values())
        self._tell(done, total)


@contextmanager
def watched(spark: SparkSession, tell: Tell | None) -> Iterator[None]:
    """Report the progress of a session's jobs while the block runs."""
    if tell is None or not hasattr(spark, "sparkContext"):
        yield
        return
    watcher = _Watcher(spark, tell)
    watcher.start()
    try:
        yield
    finally:
        watcher.stop()
