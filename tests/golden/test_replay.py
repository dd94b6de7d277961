"""The golden runs, replayed: a fresh Roquet must respond as Apache RocketMQ 5.4.0 did.

What the clients of a run sent goes to a name server and a broker over connections of their own, in
the recorded order, with the recorded settings. Responses, the servers' requests to clients, the
broker's requests to the name server, and what is on disk in the end are compared value by value
(tests.golden.replay_compare). tests.golden.replay_differences names what differs on purpose.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.golden.replay_differences import INTENDED
from tests.golden.replay_run import Replay, replay
from tests.golden.replay_steps import steps

RUNS = ("json", "binary", "ext")


def names_of_differences(run: str, played: Replay) -> Counter[str]:
    """How often the named differences were found; others are an error."""
    assert played.compared == sum(step.is_compared for step in steps(run))
    needed: Counter[str] = Counter()
    unexpected: list[str] = []
    for found in played.found:
        names = [each.name for each in INTENDED if each.covers(run, found)]
        needed.update(names)
        if not names:
            unexpected.append(str(found))
    assert not unexpected, "\n".join(unexpected)
    return needed


@pytest.mark.parametrize("run", RUNS)
def test_a_replayed_run_matches_the_recording(run: str, tmp_path: Path) -> None:
    needed = names_of_differences(run, replay(run, tmp_path, in_bursts=False))
    assert [each.name for each in INTENDED if run in each.runs and not needed[each.name]] == []


@pytest.mark.parametrize("run", RUNS)
def test_a_run_replayed_in_bursts_matches_the_recording(run: str, tmp_path: Path) -> None:
    assert names_of_differences(run, replay(run, tmp_path, in_bursts=True))


def test_differences_have_unique_names() -> None:
    assert len({each.name for each in INTENDED}) == len(INTENDED)
    assert all(each.reason for each in INTENDED)
