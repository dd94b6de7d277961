"""How the descriptors of a process are divided."""

from __future__ import annotations

import resource

import pytest

from roquet.runtime import open_files
from roquet.runtime.open_files import (
    DescriptorBudget,
    OpenFilesLimit,
    open_files_limit,
    raise_open_files_limit,
)

INFINITY = resource.RLIM_INFINITY


class Limits:
    """A process with a limit of its own."""

    def __init__(self, soft: int, hard: int, granted: int | None = None) -> None:
        self.now = (soft, hard)
        self._granted = granted

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.now

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        if self._granted is not None:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        (Limits(1_024, 4_096), OpenFilesLimit(4_096, 4_096)),
        (Limits(4_096, 4_096), OpenFilesLimit(4_096, 4_096)),
        (Limits(256, 4_096, granted=256), OpenFilesLimit(256, 4_096)),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, limits: Limits, raised: OpenFilesLimit
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", limits.setrlimit)
    assert raise_open_files_limit() == raised
    assert open_files_limit() == raised


def test_an_infinite_limit_is_a_large_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, INFINITY))
    soft, hard = open_files_limit()
    assert soft == 1_024
    assert hard > 1 << 40


def budget(limit: int, store_files: int) -> DescriptorBudget:
    return DescriptorBudget(lambda: store_files, limit=lambda: OpenFilesLimit(limit, limit))


def test_connections_get_what_the_store_and_the_process_leave() -> None:
    shared = budget(1_024, 300)
    assert shared.connections_max == 1_024 - open_files.PROCESS_SHARE - 300
    assert shared.has_room(shared.connections_max - 1, 700)
    assert not shared.has_room(shared.connections_max, 700)


def test_a_high_descriptor_is_refused_however_few_connections_are_counted() -> None:
    shared = budget(1_024, 0)
    highest = 1_024 - open_files.PROCESS_SHARE
    assert shared.has_room(10, highest - 1)
    assert not shared.has_room(10, highest)


def test_one_connection_is_always_accepted() -> None:
    shared = budget(64, 500)
    assert shared.connections_max == 1
    assert shared.has_room(0, 60)
    assert not shared.has_room(1, 20)
