"""The test tools themselves: faults occur where requested, images show what was lost."""

from __future__ import annotations

import errno
import inspect
import os
import random
from pathlib import Path

import pytest

from roquet.runtime.files import Files
from roquet.testing.files import (
    ENOSPC_CALLS,
    PAGE_BYTES,
    SECTOR_BYTES,
    FaultyFiles,
    HookedFiles,
    RecordingFiles,
)

# Made of other calls, or calls that have no way to fail.
NOT_HOOKED = {
    "inside",
    "make_dirs",
    "map_anonymous",
    "unmap",
    "lock",
    "lock_dir",
    "lock_holder",
} | {
    "read_file",
    "write_file",
}


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


def test_every_call_of_files_is_hooked() -> None:
    assert set(vars(HookedFiles)) & public(Files) == public(Files) - NOT_HOOKED
    assert public(Files) | {"create"} >= ENOSPC_CALLS


def test_the_chosen_call_fails_and_the_next_does_not(tmp_path: Path) -> None:
    files = FaultyFiles(fail_at=2)
    fd = files.open(tmp_path / "f", write=True, create=True)
    with pytest.raises(OSError, match="error") as caught:
        files.write_at(fd, b"x" * 1100, 0)
    assert caught.value.errno == errno.EIO
    assert os.fstat(fd).st_size == SECTOR_BYTES, "half the sectors are written"
    files.write_at(fd, b"x" * 1100, 0)
    files.close(fd)
    assert [call.name for call in files.calls] == ["create", "write_at", "write_at", "close"]
    assert files.failed is not None
    assert files.failed.name == "write_at"


def test_all_calls_fail_until_healed(tmp_path: Path) -> None:
    files = FaultyFiles(fail_at=1, error=errno.ENOSPC, and_after=True)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            files.open(tmp_path / "f", write=True, create=True)
    assert files.list_dir(tmp_path) == [], "a full disk can be read"
    files.heal()
    files.close(files.open(tmp_path / "f", write=True, create=True))


def images(files: RecordingFiles, place: Path, count: int = 60) -> list[Path]:
    made = [place / f"image{number}" for number in range(count)]
    for number, path in enumerate(made):
        files.image(random.Random(number), path, by_sector=number % 2 == 0)
    return made


def test_what_was_synced_is_in_every_image(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = RecordingFiles(root)
    files.make_dirs(root / "d")
    files.write_file(root / "d" / "f", b"sure" * 5000)
    for image in images(files, tmp_path):
        assert (image / "d" / "f").read_bytes() == b"sure" * 5000
    files.release()


def test_what_was_not_synced_is_old_new_or_torn(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = RecordingFiles(root)
    files.make_dirs(root)
    files.write_file(root / "f", b"o" * 3 * PAGE_BYTES)
    fd = files.open(root / "f", write=True)
    mapping = files.map(fd, 3 * PAGE_BYTES, write=True)
    mapping[:] = b"n" * 3 * PAGE_BYTES
    pages: set[str] = set()
    for image in images(files, tmp_path):
        data = (image / "f").read_bytes()
        assert len(data) == 3 * PAGE_BYTES
        for start in range(0, len(data), PAGE_BYTES):
            page = data[start : start + PAGE_BYTES]
            sectors = {page[s : s + SECTOR_BYTES] for s in range(0, PAGE_BYTES, SECTOR_BYTES)}
            assert sectors <= {b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES}
            pages.add("torn" if len(sectors) == 2 else chr(page[0]))
    assert pages == {"o", "n", "torn"}
    mapping.close()
    files.close(fd)
    files.release()


def test_names_and_lengths_that_were_not_synced_may_be_lost(tmp_path: Path) -> None:
    root = tmp_path / "root"
    files = RecordingFiles(root)
    files.make_dirs(root)
    files.write_file(root / "kept", b"1")
    files.write_file(root / "removed", b"2")
    files.write_file(root / "source", b"3")
    fd = files.open(root / "new", write=True, create=True)
    files.write_at(fd, b"4", 0)
    files.close(fd)
    files.unlink(root / "removed")
    files.rename(root / "source", root / "target")
    fd = files.open(root / "kept", write=True)
    files.truncate(fd, 0)
    files.truncate(fd, 9)
    files.close(fd)
    seen = [{path.name for path in image.iterdir()} for image in images(files, tmp_path)]
    assert {"kept", "removed", "source"} in seen
    assert {"kept", "new", "target"} in seen
    assert all("kept" in names for names in seen)
    assert all(("source" in names) != ("target" in names) for names in seen), "not atomic"
    lengths = {len((tmp_path / f"image{n}" / "kept").read_bytes()) for n in range(60)}
    assert lengths == {0, 1, 9}
    files.killed(tmp_path / "killed")
    assert {p.name for p in (tmp_path / "killed").iterdir()} == {"kept", "new", "target"}
    files.release()


def test_a_new_recording_takes_existing_files_as_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d" / "f").write_bytes(b"there")
    files = RecordingFiles(root)
    for image in images(files, tmp_path, 10):
        assert (image / "d" / "f").read_bytes() == b"there"
    files.release()
