"""Checking a lock without taking it, and swapping two directories."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.runtime.files import Files

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("byte", "is_seen"), [(0, True), (1, False)])
def test_lock_holder(tmp_path: Path, byte: int, *, is_seen: bool) -> None:
    """Byte 0 is the one that brokers lock."""
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    files = Files()
    assert files.lock_holder(path) is None
    command = [sys.executable, "-c", HOLD, str(path), str(byte)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == b"held\n"
            assert files.lock_holder(path) == (process.pid if is_seen else None)
        finally:
            process.stdin.close()
            process.wait()
    assert files.lock_holder(path) is None
    assert path.read_bytes() == b"lock"


def test_exchange(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "is").write_text(name)
    Files().exchange(tmp_path / "first", tmp_path / "second")
    assert (tmp_path / "first" / "is").read_text() == "second"
    assert (tmp_path / "second" / "is").read_text() == "first"
    with pytest.raises(OSError, match="No such file") as caught:
        Files().exchange(tmp_path / "first", tmp_path / "third")
    assert caught.value.errno == errno.ENOENT
