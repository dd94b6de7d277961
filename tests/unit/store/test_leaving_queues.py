"""Deletions of queues that the disk interrupts."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.store.default_message_store import DefaultMessageStore
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import answer, bodies, config, message, open_store, opened, put
from tests.unit.store.vouching_kit import LATER

STEPS = frozenset({"unlink", "sync_dir", "remove_dir"})
SETTINGS = {
    "plain": config(consume_queue_file_bytes=200),
    "ext": config(consume_queue_file_bytes=200, consume_queue_ext=True),
}
OLD = [b"old%d" % number for number in range(25)]


def interrupted(root: Path, name: str, step: int, error: int) -> tuple[DefaultMessageStore, bool]:
    """A store with a deletion that fails at one of its steps; whether it has that many."""
    files = FaultyFiles(error=error, only=STEPS)
    store = open_store(root, files=files, clock=LATER, config=SETTINGS[name])
    for queue_id in (0, 1):
        put(store, *[message(body, queue_id=queue_id) for body in OLD])
    store.flush()
    store.upkeep.flush_logics(thorough=True)
    files.fail_at = len(files.calls) + step
    with suppress(OSError):
        store.delete_topics(["T"])
    files.heal()
    return store, files.failed is not None


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("is_repeated", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_recreated_topic_shares_nothing_with_the_deleted_one(
    tmp_path: Path, name: str, *, is_repeated: bool, error: int
) -> None:
    step = 0
    is_interrupted = True
    while is_interrupted:
        step += 1
        root = tmp_path / str(step)
        store, is_interrupted = interrupted(root, name, step, error)
        assert store.max_offset_in_queue("T", 0) == 0
        if is_repeated:
            assert store.delete_topics(["T"]) == is_interrupted
        put(store, message(b"new"))
        assert bodies(store) == [b"new"]
        store.shutdown()
        with opened(root, clock=LATER, config=SETTINGS[name]) as again:
            assert bodies(again) == [b"new"]
            assert bodies(again, queue_id=1) == []
    assert step > 10


@pytest.mark.parametrize("name", SETTINGS)
def test_a_crash_during_a_deletion_leaves_no_gap(tmp_path: Path, name: str) -> None:
    step = 0
    is_interrupted = True
    while is_interrupted:
        step += 1
        root = tmp_path / str(step)
        store, is_interrupted = interrupted(root, name, step, errno.EIO)
        store.lifecycle.abandon()
        with opened(root, clock=LATER, config=SETTINGS[name]) as again:
            for queue_id in (0, 1):
                kept = OLD[again.min_offset_in_queue("T", queue_id) :]
                assert bodies(again, queue_id=queue_id) in ([], kept)


def test_puts_are_refused_while_old_files_cannot_be_removed(tmp_path: Path) -> None:
    files = FaultyFiles(only=STEPS, and_after=True)
    store = open_store(tmp_path / "store", files=files, clock=LATER)
    put(store, message(b"old"))
    files.fail_at = len(files.calls) + 1
    with pytest.raises(OSError, match="Input/output error"):
        store.delete_topics(["T"])
    refused = answer(store, message(b"new"))
    assert refused.status.value == "SERVICE_NOT_AVAILABLE"
    assert "deleted topic T" in refused.detail
    files.heal()
    put(store, message(b"new"))
    assert bodies(store) == [b"new"]
    store.shutdown()
