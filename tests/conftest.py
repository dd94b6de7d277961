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


# Real clients and servers have time-outs of their own, beyond which a busy machine may starve them,
# and a Java broker may take the commit of an older pull last. What fails there is tried again.
ON_REAL_CLOCKS = ("interop", "spark")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Has tests of one xdist_group run in one process, and those on real clocks once more.

    pytest-xdist 3.8 writes the group to where pytest looked before 9.1; newer ones have the id as
    an object. Without this each process would start servers of its own for every group.
    """
    for item in items:
        if any(item.get_closest_marker(name) for name in ON_REAL_CLOCKS):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if getattr(config.option, "loadgroup", False):
        for item in items:
            as_object, as_text = getattr(item, "_id", None), getattr(item, "_nodeid", None)
            if as_object is not None and as_text is not None:
                setattr(item, "_id", type(as_object).parse(as_text))  # noqa: B010 - is not typed


@pytest.fixture
def seed() -> int:
    """The seed of this run; print it in whatever a random test reports."""
    return SEED


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Randomness that ROQUET_TEST_SEED repeats."""
    return random.Random(seed)
