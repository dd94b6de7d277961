"""``archive_table`` as a process that says when it writes and commits, to be killed meanwhile.

As a program: ``STORE TABLE FORMAT BROKER RANGE_BYTES``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from roquet.errors import RoquetError
from roquet.spark.jobs import lake_files, table_archive
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
    kind: Any = type(open_table(lake_format, address))
    publish, try_commit = lake_files.NewFile.publish, kind.try_commit

    def told_publish(self: Any) -> None:  # noqa: ANN401 - a file
        tell(WRITING)
        publish(self)

    def told_commit(self: Any, *given: Any) -> Any:  # noqa: ANN401 - a table
        tell(COMMITTING)
        found = try_commit(self, *given)
        tell(COMMITTED)
        return found

    setattr(lake_files.NewFile, "publish", told_publish)  # noqa: B010 - mypy would not have it
    kind.try_commit = told_commit
    table_archive.RANGES_PER_COMMIT = RANGES_PER_COMMIT
    try:
        archive_table(
            HERE, store, address, lake_format, broker_name=broker, range_bytes=int(range_bytes)
        )
    except RoquetError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
