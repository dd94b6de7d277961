"""``roquet spark archive`` with workers that can be held; as a program, ``STAGES`` and its words.

The processes that Spark starts inherit from the environment where the folder of the stages is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from roquet.cli.main import main as run_command
from roquet.spark.jobs import archive, follow
from roquet.spark.jobs.archive_plan import ArchiveTask
from roquet.spark.jobs.lake import Lake, RangeManifest
from roquet.spark.report import Report
from tests.spark.stages import Stages

BEFORE_FILES, BEFORE_MANIFEST = "before files", "before manifest"
RANGE_BYTES = 8 << 10

_STAGES = "ROQUET_TEST_STAGES"


class HeldLake(Lake):
    """Stops when all files of a range are there, and its manifest is not."""

    stages: Stages

    def write_manifest(self, manifest: RangeManifest) -> None:
        self.stages.come(BEFORE_MANIFEST, manifest.start)
        super().write_manifest(manifest)


@dataclass(frozen=True)
class HeldWorker(archive.ArchiveWorker):
    """Stops before a range is written, and before its manifest is."""

    def __call__(self, task: ArchiveTask) -> archive.ArchiveTaskResult:
        HeldLake.stages = Stages(Path(os.environ[_STAGES]))
        HeldLake.stages.come(BEFORE_FILES, task.start)
        setattr(archive, "Lake", HeldLake)  # noqa: B010 - mypy would not have it
        return super().__call__(task)


def main() -> None:
    os.environ[_STAGES] = sys.argv.pop(1)
    setattr(archive, "ArchiveWorker", HeldWorker)  # noqa: B010 - mypy would not have it
    setattr(follow, "follow", partial(with_small_ranges, follow.follow))  # noqa: B010 - nor this
    run_command()


def with_small_ranges(job: Callable[..., Report], *given: object, **more: object) -> Report:
    """``follow`` with ranges smaller than its command allows."""
    return job(*given, **{**more, "range_bytes": RANGE_BYTES})


if __name__ == "__main__":
    from tests.spark import archive_killed

    archive_killed.main()
