"""Many topics, queues and idle connections: all of it works, in little memory."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.remoting.codes import RequestCode, ResponseCode
from tests.interop.javabroker import write_topics
from tests.security.kit import (
    Peer,
    Victim,
    allow_descriptors,
    peer_of,
    pull_fields,
    request,
    send_fields,
    silent_connections,
)

TOPICS = 5_000
QUEUES = 4
CONNECTIONS = 2_000
WINDOW = 200
ANONYMOUS_MAX_BYTES = 400 << 20

IN_MEMORY = Path("/dev/shm")  # noqa: S108 a folder of its own is created there


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of new files are synced one by one."""
    if not os.access(IN_MEMORY, os.W_OK) or shutil.disk_usage(IN_MEMORY).free < 1 << 30:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        yield Path(name)


def topic(number: int) -> str:
    return f"Topic{number:04}"


async def fill(peer: Peer) -> None:
    """Store one message in every queue; retry what is refused because the broker is busy."""
    places = [(number, queue_id) for number in range(TOPICS) for queue_id in range(QUEUES)]
    left = list(range(len(places)))
    while left:
        burst, left = left[:WINDOW], left[WINDOW:]
        for opaque in burst:
            number, queue_id = places[opaque]
            fields = send_fields(topic(number), str(queue_id))
            body = f"{number}-{queue_id}".encode()
            peer.write(request(RequestCode.SEND_MESSAGE_V2, fields, body=body, opaque=opaque))
        for _ in burst:
            answer = await peer.answer()
            if answer.code == ResponseCode.SYSTEM_BUSY:
                left.append(answer.opaque)
            else:
                assert answer.code == ResponseCode.SUCCESS, answer.remark


async def check_queue(peer: Peer, number: int, queue_id: int) -> None:
    pull = request(RequestCode.PULL_MESSAGE, pull_fields(topic(number), str(queue_id)))
    answer = await peer.ask(pull)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert (answer.ext_fields or {})["maxOffset"] == "1"
    assert f"{number}-{queue_id}".encode() in answer.body


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_many_topics_and_idle_connections(folder: Path, rng: random.Random) -> None:
    allow_descriptors(2 * CONNECTIONS)
    write_topics(folder / "store", {topic(number): QUEUES for number in range(TOPICS)})
    sample = [(rng.randrange(TOPICS), rng.randrange(QUEUES)) for _ in range(200)]
    sample += [(0, 0), (TOPICS - 1, QUEUES - 1)]
    victim = await Victim.start("broker", folder)
    try:
        async with peer_of(victim) as peer:
            await fill(peer)
        await victim.stop()

        victim = await Victim.start("broker", folder)
        with silent_connections(victim, CONNECTIONS, b"", b"\x00"):
            async with peer_of(victim) as peer:
                for number, queue_id in sample:
                    await check_queue(peer, number, queue_id)
                for number, queue_id in sample:
                    fields = send_fields(topic(number), str(queue_id))
                    answer = await peer.ask(request(RequestCode.SEND_MESSAGE_V2, fields, body=b"x"))
                    assert answer.code == ResponseCode.SUCCESS, answer.remark
                facts = await victim.facts()
            assert facts["connections"] == CONNECTIONS + 1
            assert victim.anonymous_bytes() < ANONYMOUS_MAX_BYTES
        await victim.stop()
        assert "Traceback" not in victim.log()
    finally:
        await victim.kill()
