"""``archive`` as a process that says when it writes and commits, to be killed meanwhile.

As a program: ``STORE LAKE FORMAT BROKER RANGE_BYTES``. It needs no Spark: workers run here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from roquet.errors import RoquetError
from roquet.spark.jobs import lake_files, table_archive
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.table_archive import archive_table
from roquet.spark.jobs.tables import open_table
from tests.unit.spark.jobs.kit import HERE

WRITING, COMMITTING, COMMITTED = "writing", "committing", "committed"
RANGES_PER_COMMIT = 2


def tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    store, address, lake_format, broker, range_bytes = arguments
    is_table = lake_format != "parquet"
    kind: Any = type(open_table(lake_format, address)) if is_table else lake_files.Place
    name = "try_commit" if is_table else "publish"  # of a lake, its manifests and plans
    publish, commit = lake_files.NewFile.publish, getattr(kind, name)

    def told_publish(self: Any) -> None:  # noqa: ANN401 - a file
        tell(WRITING)
        publish(self)

    def told_commit(self: Any, *given: Any) -> Any:  # noqa: ANN401 - a table or a lake
        tell(COMMITTING)
        found = commit(self, *given)
        tell(COMMITTED)
        return found

    setattr(lake_files.NewFile, "publish", told_publish)  # noqa: B010 - mypy would not have it
    setattr(kind, name, told_commit)
    table_archive.RANGES_PER_COMMIT = RANGES_PER_COMMIT
    given = {"broker_name": broker, "range_bytes": int(range_bytes)}
    try:
        if is_table:
            archive_table(HERE, store, address, lake_format, **given)  # type: ignore[arg-type]
        else:
            archive(HERE, store, address, **given)  # type: ignore[arg-type]
    except RoquetError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
