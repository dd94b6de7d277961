"""Attacks of one peer, at a part of their size, beside a healthy client in its own process.

The full size, side by side with a Java broker, is ``python -m benchmarks.attacks``. Here the
healthy client's p99 is bounded by what it was without the attack, generously: the attacker, the
server, the client and other tests share the cores, and what the bound must catch are stalls of
seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.attacks.catalogue import ATTACKS, Attack, Target
from benchmarks.attacks.watch import limited, strike
from benchmarks.sides import RoquetSide, Running
from roquet.runtime.open_files import raise_open_files_limit
from tests.patience import NEVER_MS

pytestmark = pytest.mark.slow

SCALE = 0.25
P99_TIMES = 100
P99_CALM_LEAST_S = 0.03
MEMORY_GROWTH_BYTES = 200 << 20


@pytest.fixture(params=ATTACKS)
def attack(request: pytest.FixtureRequest) -> Attack:
    return ATTACKS[request.param]


@pytest.fixture
def running(attack: Attack, tmp_path: Path) -> Iterator[Running]:
    raise_open_files_limit()
    settings: dict[str, str | int] = {
        "enablePropertyFilter": "true",
        "mapedFileSizeCommitLog": 64 << 20,
        # On a slow machine nothing but the attack causes refusals.
        "waitTimeMillsInSendQueue": NEVER_MS,
        "osPageCacheBusyTimeOutMills": NEVER_MS,
    }
    # The limit is as small as the attack.
    with limited(attack, scale=SCALE):
        started = RoquetSide().start(tmp_path, settings)
    try:
        yield started
        started.stop()
    finally:
        started.kill()


def test_a_healthy_client_hardly_notices(attack: Attack, running: Running) -> None:
    pid = running.namesrv.pid if attack.on_namesrv else running.pid
    target = Target(running.address, running.namesrv_address)
    outcome = strike(attack, target, pid, scale=SCALE, calm_s=1.0, after_s=1.0)
    assert running.broker.is_running()
    assert running.namesrv.is_running()
    assert (outcome.lost, outcome.refused, outcome.broken) == (0, 0, 0)
    assert outcome.most_bytes - outcome.before_bytes < MEMORY_GROWTH_BYTES
    assert outcome.p99_s < P99_TIMES * max(outcome.calm_p99_s, P99_CALM_LEAST_S)
