"""Repeated kill -9 under load on the same store: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.inspect.verify import verify
from roquet.storefiles.view import StoreView
from roquet.testing.history import History, Outcome, Poll, QueueKey, Seen, check
from tests.campaign import campaign
from tests.crash import harness, writer

ROUNDS = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
ACKS_MAX = 400
CHECK_EVERY = 4


def live_and_die(
    root: Path, mode: str, *, life: int, seed: int, acks: int, history: History
) -> None:
    """Start a writer, kill it after some acknowledgements, and record its output."""
    errors = root.with_suffix(".stderr")
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, writer.__file__, str(root), mode, str(life), str(seed)],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    assert process.stdout is not None
    seen = 0
    is_killed = False
    with process.stdout as output:
        for line in output:
            if not line.endswith(b"\n"):
                break
            words = line.decode().split()
            note(history, words)
            seen += words[0] == "ack"
            if not is_killed and seen >= acks and (acks or words[0] == "loading"):
                process.send_signal(signal.SIGKILL)
                is_killed = True
    process.wait()
    said = errors.read_text()
    assert process.returncode == -signal.SIGKILL, f"the writer ended by itself:\n{said}"
    assert "Traceback" not in said, said


def note(history: History, words: list[str]) -> None:
    match words:
        case ["put", producer, queue, value]:
            history.invoke(producer, (writer.TOPIC, int(queue)), value)
        case ["ack", value, offset]:
            history.complete(value, Outcome.OK, int(offset))
        case ["no", value]:
            history.complete(value, Outcome.FAIL)


def read_all(root: Path, mode: str) -> dict[QueueKey, list[Seen]]:
    """Recover a store and read every queue; then its files must agree with each other."""
    store = DefaultMessageStore(root, writer.config_of(mode))
    store.load()
    store.start()
    try:
        final = {
            (writer.TOPIC, queue): [
                Seen(message.queue_offset, message.body.partition(b":")[0].decode())
                for message in harness.read_queue(store, (writer.TOPIC, queue))
            ]
            for queue in range(writer.QUEUES)
        }
    finally:
        store.shutdown()
    with StoreView(Files(), root) as view:
        report = verify(view, SystemClock(), index_slots=writer.config_of(mode).index_slots)
    assert report.ok, report.faults[:5]
    return final


SHORT = [("sync", 3), ("async", 3), ("pool", 2)]
LONG = [("sync", 12), ("async", 12), ("pool", 8)]


@pytest.mark.parametrize(("mode", "rounds"), campaign(SHORT, LONG))
def test_killed_again_and_again(mode: str, rounds: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    root = tmp_path / "store"
    history = History()
    for life in range(rounds * ROUNDS):
        acks = 0 if rng.random() < 0.15 else rng.randrange(1, ACKS_MAX)
        live_and_die(root, mode, life=life, seed=seed, acks=acks, history=history)
        if life % CHECK_EVERY == CHECK_EVERY - 1:
            copy = harness.copy_tree(root, tmp_path / "copy")
            final = read_all(copy, mode)
            assert check(history, final) == [], f"after life {life}, seed {seed}"
            for queue, seen in final.items():
                history.poll(Poll(f"life {life}", queue, 0, seen, life=life))
            shutil.rmtree(copy)
    final = read_all(root, mode)
    assert check(history, final) == [], f"seed {seed}"
    acknowledged = sum(send.outcome is Outcome.OK for send in history.sends.values())
    assert acknowledged > 20 * rounds
    assert sum(len(seen) for seen in final.values()) >= acknowledged
