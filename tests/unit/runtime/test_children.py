"""Processes that a library started are found and killed, with what they started."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from roquet.runtime.children import descendants, kill_descendants


@contextmanager
def family() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A shell and the process that it started."""
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        try:
            yield shell, int(shell.stdout.readline())
        finally:
            shell.kill()


def test_children_and_theirs_are_found_and_killed() -> None:
    with family() as (shell, child):
        found = descendants()
        assert found.index(shell.pid) < found.index(child)
        with family() as (other, its_child):
            assert kill_descendants(frozenset({*found, os.getppid()}))
            assert other.wait(30) == -signal.SIGKILL
            assert its_child not in descendants()
        assert shell.poll() is None
        assert kill_descendants(frozenset(set(found) - {shell.pid, child}))
        assert shell.wait(30) == -signal.SIGKILL
    assert not kill_descendants(frozenset(descendants()))
