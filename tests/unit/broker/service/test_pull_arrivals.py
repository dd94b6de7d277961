"""What a burst brought into a queue."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from roquet.broker.service.pull_arrivals import arrived
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import message, opened, put


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_entries_that_cannot_be_read_wake_every_pull(tmp_path: Path, error: int) -> None:
    files = FaultyFiles(error=error, and_after=True, only=frozenset({"open"}))
    with opened(tmp_path / "store", files=files) as store:
        put(store, message(b"one"))
        queue = store.queues.find("T", 0)
        assert queue is not None
        assert arrived(queue, 0, store.commit_log.slice) is not None
        files.fail_at = len(files.calls) + 1
        assert arrived(queue, 0, store.commit_log.slice) is None
        files.heal()
