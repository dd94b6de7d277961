"""Writes that compiled code makes by itself are reported, and can be failed, like all others."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from roquet.format.consume_queue import UNIT_BYTES
from roquet.runtime import compiled
from roquet.runtime.files import Buffer
from roquet.testing.files import FaultyFiles, HookedFiles
from tests.unit.store.kit import bodies, message, opened, put

pytestmark = pytest.mark.skipif(
    not compiled.is_used("roquet.store._append"), reason="needs the compiled append"
)


class Noting(HookedFiles):
    """Records every write, and those that Python makes."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int]] = []
        self.by_python = 0

    def before_write(self, fd: int, data: Buffer, position: int) -> None:
        super().before_write(fd, data, position)
        self.told.append((position, len(data)))

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        self.by_python += 1
        super().write_at(fd, data, position)


def failing_writes(*, and_after: bool) -> FaultyFiles:
    return FaultyFiles(only=frozenset({"write_at"}), error=errno.EIO, and_after=and_after)


def test_a_write_of_compiled_code_is_reported(tmp_path: Path) -> None:
    files = Noting()
    with opened(tmp_path / "store", files=files) as store:
        put(store, message(b"makes the file"))
        files.told.clear()
        by_python = files.by_python
        put(store, message(b"second"), message(b"third"))
        assert files.told == [(UNIT_BYTES, 2 * UNIT_BYTES)]
        assert files.by_python == by_python
        assert bodies(store) == [b"makes the file", b"second", b"third"]


def test_a_write_that_fails_once_is_retried(tmp_path: Path) -> None:
    files = failing_writes(and_after=False)
    with opened(tmp_path / "store", files=files) as store:
        put(store, message(b"first"))
        calls = len(files.calls)
        files.fail_at = calls + 1
        put(store, message(b"second"))
        assert files.failed is not None
        assert len(files.calls) == calls + 2, "compiled code's, then that of the reference path"
        assert bodies(store) == [b"first", b"second"]
    with opened(tmp_path / "store") as again:
        assert bodies(again) == [b"first", b"second"]


def test_entries_wait_while_writes_fail(tmp_path: Path) -> None:
    files = failing_writes(and_after=True)
    with opened(tmp_path / "store", files=files) as store:
        put(store, message(b"first"))
        files.fail_at = len(files.calls) + 1
        put(store, message(b"second"))
        assert files.failed is not None
        assert store.queues.has_pending
        assert bodies(store) == [b"first"]
        files.heal()
    with opened(tmp_path / "store") as again:
        assert bodies(again) == [b"first", b"second"]
