"""How far random tests and long campaigns go: a sample in `make test`, all of it in `make check`.

The sample is the same in every run. `ROQUET_TEST_SEED` sets another seed and runs all examples; the
marker `slow` keeps the rest of a campaign for `make check`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet

SEED_VARIABLE = "ROQUET_TEST_SEED"
SEED = int(os.environ.get(SEED_VARIABLE, "20240607"))
IS_SEED_GIVEN = SEED_VARIABLE in os.environ

EXAMPLES_MIN = 10
EXAMPLES_SHARE = 3


def examples(count: int) -> int:
    """How many examples Hypothesis tries where a campaign has `count` of them."""
    return count if IS_SEED_GIVEN else max(count // EXAMPLES_SHARE, EXAMPLES_MIN)


def sampled(values: Iterable[object], sample: int = 1) -> list[ParameterSet]:
    """Parameters of a campaign: the first `sample` always run, the others are slow."""
    rows = [(value,) for value in values]
    return campaign(rows[:sample], rows[sample:])


def campaign(
    short: Iterable[tuple[object, ...]], long: Iterable[tuple[object, ...]]
) -> list[ParameterSet]:
    """Rows of parameters: the short ones always run, the long ones are slow."""
    return [pytest.param(*row) for row in short] + [
        pytest.param(*row, marks=pytest.mark.slow) for row in long
    ]
