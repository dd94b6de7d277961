"""Tasks of all stages are added up, also of those that Spark has forgotten."""

from typing import NamedTuple, cast

from pyspark.sql import SparkSession

from roquet.spark.progress import _Watcher, watched


class Info(NamedTuple):
    numCompletedTasks: int  # noqa: N815 - Spark's name
    numTasks: int  # noqa: N815 - Spark's name


class Tracker:
    def __init__(self) -> None:
        self.stages: dict[int, Info] = {}
        self.active: list[int] = []

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        return self.active

    def getStageInfo(self, stage_id: int) -> Info | None:  # noqa: N802 - Spark's name
        return self.stages.get(stage_id)


class Session:
    def __init__(self) -> None:
        self.tracker = Tracker()

    @property
    def sparkContext(self) -> "Session":  # noqa: N802 - Spark's name
        return self

    def statusTracker(self) -> Tracker:  # noqa: N802 - Spark's name
        return self.tracker


def test_stages_are_added_up() -> None:
    session = Session()
    told: list[tuple[int, int]] = []
    watcher = _Watcher(
        cast("SparkSession", session), lambda done, total: told.append((done, total))
    )
    watcher.look()
    session.tracker.active = [1]
    session.tracker.stages = {1: Info(2, 10)}
    watcher.look()
    session.tracker.active = [2]
    session.tracker.stages = {1: Info(10, 10), 2: Info(1, 4)}
    watcher.look()
    session.tracker.stages = {2: Info(3, 4)}
    watcher.look()
    assert told == [(0, 0), (2, 10), (11, 14), (13, 14)]


def test_nobody_is_told_where_nothing_is_known() -> None:
    with watched(cast("SparkSession", object()), lambda *_: None):
        pass
    with watched(cast("SparkSession", Session()), None):
        pass
