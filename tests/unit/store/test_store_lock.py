from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from roquet.errors import StoreLocked
from roquet.runtime.files import Files
from roquet.runtime.held_stores import is_held_here
from roquet.runtime.memory import process_id
from roquet.store.store_lock import StoreLock
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import new_store, opened

HOLD = """
import sys
from pathlib import Path
from roquet.runtime.files import Files
from roquet.store.store_lock import StoreLock
lock = StoreLock(Files(), Path(sys.argv[1]))
lock.acquire()
lock.mark_running()
print("held", flush=True)
sys.stdin.read()
"""


TAKE = """
import sys
from pathlib import Path
from roquet.runtime.files import Files
from roquet.store.store_lock import StoreLock

StoreLock(Files(), Path(sys.argv[1])).acquire()
"""


def test_the_files_of_a_running_store(tmp_path: Path) -> None:
    lock = StoreLock(Files(), tmp_path / "a" / "store")
    lock.acquire()
    assert not lock.was_aborted
    lock.mark_running()
    root = tmp_path / "a" / "store"
    assert (root / "abort").read_text() == str(process_id())
    lock.mark_stopped()
    assert not (root / "abort").exists()
    lock.release()
    assert (root / "lock").read_bytes() == b"roquet"


def test_which_broker_used_the_store_last(tmp_path: Path) -> None:
    """A Java broker overwrites what a clean shutdown left."""
    lock = StoreLock(Files(), tmp_path)
    for is_ours in (False, True):
        lock.acquire()
        assert lock.was_ours is is_ours
        lock.mark_stopped()
        lock.release()
    with (tmp_path / "lock").open("r+b") as file:
        file.write(b"lock")
    lock.acquire()
    assert not lock.was_ours
    lock.release()


def test_abort_found_at_start_means_an_unclean_exit(tmp_path: Path) -> None:
    first = StoreLock(Files(), tmp_path)
    first.acquire()
    first.mark_running()
    first.release()
    second = StoreLock(Files(), tmp_path)
    second.acquire()
    assert second.was_aborted
    second.release()


def test_twice_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store")
    lock = StoreLock(Files(), tmp_path / "store")
    lock.acquire()
    assert is_held_here(tmp_path / "link")
    for path in (tmp_path / "store", tmp_path / "link", tmp_path / "store" / ".." / "store"):
        with pytest.raises(StoreLocked) as raised:
            StoreLock(Files(), path).acquire()
        assert raised.value.detail == "this process uses it already"
        assert raised.value.hint
    lock.release()
    lock.release()
    assert not is_held_here(tmp_path / "store")
    again = StoreLock(Files(), tmp_path / "store")
    again.acquire()
    again.release()


def test_another_process_holds_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(StoreLocked) as raised:
            new_store(tmp_path).load()
        assert raised.value.detail == f"process {other.pid} holds the lock"
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        other.communicate(b"")
    with opened(tmp_path) as store:
        assert store.lifecycle.last_recovery is not None
        assert not store.lifecycle.last_recovery.clean_exit


def test_a_store_that_failed_to_load_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "stranger").write_bytes(b"x")
    for _ in range(2):
        with pytest.raises(Exception, match="stranger"):
            new_store(tmp_path).load()
    (tmp_path / "commitlog" / "stranger").unlink()
    with opened(tmp_path):
        assert is_held_here(tmp_path)


def test_a_failing_lock_call_leaves_no_descriptor(tmp_path: Path) -> None:
    class NoLocks(FaultyFiles):
        def lock(self, fd: int) -> bool:  # noqa: ARG002
            raise OSError(37, "No locks available")

    files = NoLocks()
    with pytest.raises(OSError, match="No locks"):
        StoreLock(files, tmp_path).acquire()
    assert files._paths == {}
    assert not is_held_here(tmp_path)


def test_a_removed_lock_file_does_not_release_the_store(tmp_path: Path) -> None:
    lock = StoreLock(Files(), tmp_path)
    lock.acquire()
    lock.mark_running()
    (tmp_path / "lock").unlink()
    command = [sys.executable, "-c", TAKE, str(tmp_path)]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "StoreLocked" in other.stderr
    assert str(process_id()) in other.stderr
    lock.release()
    again = StoreLock(Files(), tmp_path)
    again.acquire()
    again.release()
