"""Every test gets its own victim, a witness beside the attacker, and a check for leftovers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.security.kit import Peer, Scene, Victim, Witness

KINDS = ("server", "namesrv", "broker")


@pytest.fixture(params=KINDS)
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """A victim beside a witness; afterwards nothing of the attack may be left."""
    victim = await Victim.start(request.param, tmp_path)
    try:
        witness = Witness(victim, await Peer.connect(victim))
        scene = Scene(victim, witness)
        await scene.look()
        try:
            yield scene
            await scene.all_gone()
        finally:
            await witness.leave()
        await victim.stop()
        assert "Traceback" not in victim.log()
    finally:
        await victim.kill()
