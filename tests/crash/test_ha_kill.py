"""kill -9 of a SYNC_MASTER's pair under load; the slave becomes the master each time.

The other store comes back as a slave of the new master. If its log is not the beginning of the new
master's, it says so, and is replaced by a copy.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from roquet.store.config import BrokerRole
from roquet.store.default_message_store import DefaultMessageStore
from roquet.testing.history import History, Outcome, Poll, QueueKey, Seen, check
from tests.campaign import campaign
from tests.crash import ha_replica, harness, writer

ROUNDS = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
ROOT = Path(__file__).resolve().parents[2]
ACKS_MAX = 300
MAYBES = 5


class Replica:
    """One replica's process and what it says."""

    def __init__(self, root: Path, role: BrokerRole, address: str, life: int, seed: int) -> None:
        arguments = [str(root), role.value, address, str(life), str(seed)]
        self._errors = root.with_suffix(".stderr")
        with self._errors.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", ha_replica.__name__, *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input = self.process.stdin
        self._output = self.process.stdout

    def lines(self) -> Iterator[list[str]]:
        """What it says, until it ends; a line that was cut off says nothing."""
        for line in self._output:
            if line.endswith(b"\n"):
                yield line.decode().split()

    def wait(self, *words: str) -> list[str]:
        """The next line that begins with one of these words."""
        for line in self.lines():
            if line[0] in words:
                return line
        raise AssertionError(f"it ended:\n{self._errors.read_text()}")

    def go(self) -> None:
        """Let a master send."""
        self._input.write(b"go\n")
        self._input.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.wait()
        self._input.close()
        self._output.close()


@contextmanager
def pair(stores: list[Path], life: int, seed: int) -> Iterator[tuple[Replica, Replica]]:
    """A master on the first store and a slave on the second that follows it."""
    while True:
        with Replica(stores[0], BrokerRole.SYNC_MASTER, "", life, seed) as master:
            address = f"127.0.0.1:{master.wait('at')[1]}"
            with Replica(stores[1], BrokerRole.SLAVE, address, life, seed) as slave:
                word = slave.wait("following", "fault")
                if word[0] == "following":
                    master.wait("in-sync")
                    master.go()
                    yield master, slave
                    return
        # The two histories parted when the other master was killed: this one's counts.
        assert {"longer", "differs"} & set(word), word
        shutil.rmtree(stores[1])
        shutil.copytree(stores[0], stores[1])


def live_and_die(replicas: tuple[Replica, Replica], rng: random.Random, history: History) -> None:
    """Note what the master says, and kill one or both after some acknowledgements."""
    master, slave = replicas
    acks, maybes = rng.randrange(1, ACKS_MAX), 0
    kills_slave_first = rng.random() < 0.4
    is_frozen = rng.random() < 0.3
    for words in master.lines():
        match words:
            case ["put", producer, queue, value]:
                history.invoke(producer, (writer.TOPIC, int(queue)), value)
            case ["ack", value, offset]:
                history.complete(value, Outcome.OK, int(offset))
                acks -= 1
            case ["maybe", value]:
                history.complete(value, Outcome.MAYBE)
                maybes += 1
        if acks == 0 and kills_slave_first:
            slave.process.send_signal(signal.SIGSTOP if is_frozen else signal.SIGKILL)
        if acks <= 0 and (maybes >= MAYBES or not kills_slave_first):
            master.kill()


def read_all(root: Path) -> dict[QueueKey, list[Seen]]:
    """Recover a store and read every queue."""
    store = DefaultMessageStore(root, writer.config_of("async"))
    store.load()
    store.start()
    try:
        return {
            (writer.TOPIC, queue): [
                Seen(message.queue_offset, message.body.partition(b":")[0].decode())
                for message in harness.read_queue(store, (writer.TOPIC, queue))
            ]
            for queue in range(writer.QUEUES)
        }
    finally:
        store.shutdown()


@pytest.mark.parametrize("rounds", campaign([(3,)], [(12,)]))
def test_a_promoted_slave_has_every_acknowledged_message(
    rounds: int, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    stores = [tmp_path / "one", tmp_path / "two"]
    history = History()
    for life in range(rounds * ROUNDS):
        with pair(stores, life, seed) as replicas:
            live_and_die(replicas, rng, history)
        stores.reverse()
        final = read_all(stores[0])
        assert check(history, final) == [], f"after life {life}, seed {seed}"
        for queue, seen in final.items():
            history.poll(Poll(f"life {life}", queue, 0, seen, life=life))
    acknowledged = sum(send.outcome is Outcome.OK for send in history.sends.values())
    assert acknowledged > 10 * rounds
