"""The limits of the yardstick: memory that is filled, and disk that is used."""

from __future__ import annotations

import doctest
import importlib
import os
from pathlib import Path

import pytest

from benchmarks import memory
from benchmarks.lab import allowed_bytes, used_bytes
from benchmarks.memory import LEFT_FREE_BYTES, STEP_BYTES, Ballast, steps_to_fill

GIB = 1 << 30


EXAMPLES = (
    *("broker", "chart", "client", "ha", "kafka", "lab", "memory", "page", "rows", "scenarios"),
    "services",
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_pass(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(f"benchmarks.{name}"))
    assert (failed, attempted > 0) == (0, True)


def test_some_memory_stays_free() -> None:
    assert steps_to_fill(LEFT_FREE_BYTES + STEP_BYTES - 1) == 0
    assert steps_to_fill(LEFT_FREE_BYTES + STEP_BYTES) == 1


def test_filling_stops_when_memory_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "STEP_BYTES", 1 << 16)
    left = [LEFT_FREE_BYTES + (5 << 16)]

    def free_bytes() -> int:
        now = left[0]
        left[0] -= 1 << 16
        return now

    monkeypatch.setattr(memory, "free_bytes", free_bytes)
    with Ballast(tmp_path) as ballast:
        assert ballast.fill() == 4 << 16
        assert ballast.fill() == 0
    assert list(tmp_path.iterdir()) == [], "the file has no name"


def test_filling_ends_where_memory_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "STEP_BYTES", 1 << 16)
    monkeypatch.setattr(memory, "free_bytes", lambda: LEFT_FREE_BYTES + (3 << 16))
    with Ballast(tmp_path) as ballast:
        assert ballast.fill() == 3 << 16
    assert used_bytes(tmp_path) == 0


def test_stores_leave_most_of_the_disk_free() -> None:
    assert allowed_bytes(10 * GIB) == 4 * GIB
    assert allowed_bytes(1_000 * GIB) == 24 * GIB


def test_used_space_counts_blocks_instead_of_sizes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    before = used_bytes(tmp_path)
    with (tmp_path / "sub" / "sparse").open("wb") as file:
        os.truncate(file.fileno(), 1 << 30)
    assert used_bytes(tmp_path) == before
    (tmp_path / "sub" / "full").write_bytes(b"x" * 100_000)
    assert used_bytes(tmp_path) >= before + 100_000
