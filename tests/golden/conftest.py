"""Fixtures over the store directories that Apache RocketMQ 5.4.0 wrote (see data/README.md).

Tests never open the checked-in files for writing: `golden_store` hands out a private copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN_DATA = Path(__file__).parent / "data"

GOLDEN_STORES = (
    "store-binary-clean",
    "store-binary-crash",
    "store-ext-clean",
    "store-ext-crash",
    "store-ha-master",
    "store-ha-slave",
    "store-json-clean",
    "store-json-crash",
)


@pytest.fixture(scope="session")
def golden_data() -> Path:
    """The checked-in directory of all golden stores; for reading only."""
    return GOLDEN_DATA


@pytest.fixture(params=GOLDEN_STORES)
def golden_store_name(request: pytest.FixtureRequest) -> str:
    """Each golden store's name in turn: a test that takes this runs once per store."""
    name: str = request.param
    return name


@pytest.fixture
def golden_store(tmp_path: Path) -> Callable[[str], Path]:
    """A function that copies the named golden store into this test's own directory.

    Each call makes a fresh copy, so one test may open the same store twice.
    """
    copies = 0

    def copy(name: str) -> Path:
        nonlocal copies
        if name not in GOLDEN_STORES:
            raise ValueError(
                f"no golden store named {name!r}; there are {', '.join(GOLDEN_STORES)}"
            )
        copies += 1
        target = tmp_path / f"golden-{copies}" / name
        shutil.copytree(GOLDEN_DATA / name, target, copy_function=shutil.copyfile)
        return target

    return copy
