"""Stores to view, and files that viewing must not change."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.runtime.files import Files
from tests.unit.store.synthetic import SyntheticStore

SEGMENT_BYTES = 2048


class ReadOnlyFiles(Files):
    """Fails every call that could change the disk."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        assert not write
        assert not create
        return super().open(path)

    def _refuse(self, *_arguments: object, **_options: object) -> None:
        pytest.fail("a reader changed the disk")

    make_dirs = allocate = truncate = write_at = rename = unlink = _refuse
    remove_dir = write_file = zero_range = data_sync = sync_dir = _refuse
    lock = _refuse  # type: ignore[assignment]


def fill(store: SyntheticStore, count: int = 30) -> Path:
    for number in range(count):
        store.put(
            "Orders" if number % 3 else "Parts",
            number % 2,
            f"body {number}".encode(),
            tags=f"Tag{number % 4}",
            keys=f"k{number} group{number % 5}",
            unique_key=f"7F0000010001{number:020X}",
        )
    return store.write()
