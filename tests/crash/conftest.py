"""What crash tests leave behind."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_garbage() -> Iterator[None]:
    """Stores that were dropped as a crash drops them close their descriptors now, not later.

    Other tests count the descriptors of the process.
    """
    yield
    gc.collect()
