from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker.admin.kit import Desk, desk


@pytest.fixture(name="at")
def _at(tmp_path: Path) -> Iterator[Desk]:
    """A broker's desk."""
    with desk(tmp_path) as made:
        yield made
