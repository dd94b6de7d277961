"""Idle connections up to the limit of open files: the store keeps the descriptors that it needs.

With a limit of 256, four hundred silent sockets used to leave the store without a descriptor for
its next sync, which then looked like a failed disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.remoting.codes import RequestCode
from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.store.inspect.verify import verify
from roquet.storefiles.view import StoreView
from tests.security.kit import (
    PATIENCE_S,
    Peer,
    Victim,
    Witness,
    allow_descriptors,
    good_request,
    request,
    send_fields,
    silent_connections,
)
from tests.security.victim import STORE

OPEN_FILES = 256
IDLE = 400
NEW_TOPICS = 40


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    """A broker that may have 256 files and sockets open."""
    victim = await Victim.start("broker", tmp_path, open_files=OPEN_FILES)
    yield victim
    await victim.kill()


async def test_idle_connections_leave_descriptors_to_the_store(victim: Victim) -> None:
    allow_descriptors(2 * IDLE)
    witness = Witness(victim, await Peer.connect(victim))
    creator = await Peer.connect(victim)
    assert (await creator.ask(good_request(victim))).code == 0  # a silent one might be closed
    await witness.hears_more()
    with silent_connections(victim, IDLE, b""):
        await refused_some(victim)
        for number in range(NEW_TOPICS):  # each has a queue file of its own
            fields = send_fields(f"Orders{number}")
            created = await creator.ask(request(RequestCode.SEND_MESSAGE_V2, fields, body=b"x"))
            assert created.code == 0, created.remark
        await syncs(victim.folder / "store" / "checkpoint")
        await witness.hears_more()
        await accepts(victim)  # peers that never sent anything make room
        assert victim.descriptors() < OPEN_FILES
    await accepts(victim)
    await witness.hears_more()
    sent = witness.answered
    await witness.leave()
    await creator.close()
    await victim.stop()
    log = victim.log()
    assert f"the limit of open files is {OPEN_FILES}" in log
    assert "Traceback" not in log
    assert "Too many open files" not in log
    with StoreView(Files(), victim.folder / "store") as view:
        report = verify(view, SystemClock(), index_slots=STORE.index_slots)
    assert report.ok, report.faults[:5]
    assert report.counts.records >= sent + NEW_TOPICS


async def refused_some(victim: Victim) -> None:
    """Wait until the broker has seen all connections and closed those it has no room for."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            facts = await victim.facts()
            if facts["connections_opened"] + facts["connections_refused"] >= IDLE:
                break
            await asyncio.sleep(0.01)
    assert facts["connections_refused"] > 0
    assert facts["connections"] < OPEN_FILES


async def syncs(checkpoint: Path) -> None:
    """Wait for two rounds of the thread that syncs queues; each writes the checkpoint."""
    for _ in range(2):
        before = written_ns(checkpoint)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if written_ns(checkpoint) != before:
                    break
                await asyncio.sleep(0.01)


def written_ns(path: Path) -> int:
    """When a file was last written, 0 before it is there."""
    return path.stat().st_mtime_ns if path.exists() else 0


async def accepts(victim: Victim) -> None:
    """Wait until a new connection gets a response."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            peer = await Peer.connect(victim)
            try:
                assert (await peer.ask(good_request(victim))).code == 0
            except (EOFError, ConnectionError):
                await asyncio.sleep(0.01)
            else:
                return
            finally:
                await peer.close()
