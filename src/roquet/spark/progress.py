"""How far a running job is, for whoever shows it.

Owns a thread that asks Spark for the tasks of all running stages. Works where the driver is this
process; over Spark Connect nothing is known, and nothing is told.
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
"""Takes how many tasks are done, and how many there are so far."""

INTERVAL_S = 0.2


class _Watcher:
    """Adds up the tasks of every stage it ever saw."""

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
        """Ask once, and tell."""
        active = set(self._tracker.getActiveStageIds())
        for stage_id in active | self._stages.keys():
            info = self._tracker.getStageInfo(stage_id)
            if info is not None:
                self._stages[stage_id] = (info.numCompletedTasks, info.numTasks)
            elif stage_id not in active:
                # Spark forgets old stages; what it forgot has ended.
                self._stages[stage_id] = (self._stages[stage_id][1],) * 2
        done = sum(done for done, _ in self._stages.values())
        total = sum(total for _, total in self._stages.values())
        self._tell(done, total)


@contextmanager
def watched(spark: SparkSession, tell: Tell | None) -> Iterator[None]:
    """Tell how far the jobs of a session are, while the block runs."""
    if tell is None or not hasattr(spark, "sparkContext"):
        yield
        return
    watcher = _Watcher(spark, tell)
    watcher.start()
    try:
        yield
    finally:
        watcher.stop()
