"""What all tests share: one printed seed, and hypothesis without deadlines."""

import os
import random

import pytest
from hypothesis import HealthCheck, settings

SEED = int(os.environ.get("ROQUET_TEST_SEED", "20240607"))

# A deadline would make a test fail because the machine is busy. The blob repeats a failure.
settings.register_profile(
    "roquet",
    deadline=None,
    derandomize="ROQUET_TEST_SEED" not in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roquet")


def pytest_report_header() -> str:
    pure = os.environ.get("ROQUET_PURE", "") not in {"", "0"}
    return f"roquet: ROQUET_TEST_SEED={SEED} ROQUET_PURE={int(pure)}"


@pytest.fixture
def seed() -> int:
    """The seed of this run; print it in whatever a random test reports."""
    return SEED


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Randomness that ROQUET_TEST_SEED repeats."""
    return random.Random(seed)
