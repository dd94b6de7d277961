"""A process is killed before any sync, a new one continues, then the power is cut.

What the first left in the page cache was never synced, although the second found it there. The
second must sync what it builds on, names of files and directories included.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.testing.files import RecordingFiles
from tests.crash import harness
from tests.crash.harness import ASYNC, SYNC, Driver, Sent, small_config

SEGMENT = 1 << 13
CONFIGS: dict[str, MessageStoreConfig] = {
    "sync": small_config(SYNC, segment_bytes=SEGMENT, index_entries=12),
    "async-ext": small_config(ASYNC, segment_bytes=SEGMENT, index_entries=12, ext=True),
    "pool": small_config(ASYNC, segment_bytes=SEGMENT, index_entries=12, pool=True),
}


class Killed(BaseException):
    """The process ends here."""


class NothingMore(random.Random):
    """A power cut after which only synced data is left."""

    def random(self) -> float:
        return 0.9999

    def randrange(self, *_: object, **__: object) -> int:
        return 0


class Machine:
    """One machine on which processes come and go."""

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self.root = root
        self.rng = random.Random(5)
        self.kill_at = 0
        self.syncs = 0
        self.files = RecordingFiles(root, on_call=self.on_call)
        self.driver = Driver(root, config, self.files, ManualClock())

    def on_call(self, _: int, name: str, __: Path) -> None:
        """Right before a sync there is the most unsynced data."""
        if name in {"data_sync", "sync_dir"}:
            self.syncs += 1
            if self.syncs == self.kill_at:
                raise Killed

    def message(self) -> Sent:
        entry = self.driver.ledger.make(self.rng)
        entry.body = entry.body[:1500]
        return entry

    def first_life(self) -> None:
        self.driver.open(self.root, self.files)
        for _ in range(2):
            self.driver.put([self.message() for _ in range(6)])
            self.driver.store.flusher.flush_all()
        self.driver.clock.advance(61_000)
        self.driver.flush_logics()
        self.driver.put([self.message() for _ in range(4)])
        self.driver.store.flusher.flush_all()

    def second_life(self) -> None:
        self.driver.open(self.root, self.files)
        self.driver.adopt()
        self.driver.put([self.message() for _ in range(2)])
        self.driver.store.flusher.flush_all()
        self.driver.note_safe()


def syncs_of(root: Path, config: MessageStoreConfig) -> int:
    machine = Machine(root, config)
    machine.first_life()
    syncs = machine.syncs
    machine.driver.abandon()
    machine.files.release()
    return syncs


@pytest.mark.parametrize("name", CONFIGS)
def test_a_new_process_syncs_what_it_builds_on(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    total = syncs_of(tmp_path / "whole", config)
    assert total > 30
    for kill_at in range(1, total + 1):
        machine = Machine(tmp_path / f"store{kill_at}", config)
        machine.kill_at = kill_at
        with pytest.raises(Killed):
            machine.first_life()
        machine.driver.abandon()
        machine.second_life()
        image = tmp_path / f"image{kill_at}"
        machine.files.image(NothingMore(), image)
        machine.driver.abandon()
        machine.files.release()
        try:
            harness.recover(image, config, machine.driver.clock, machine.driver.ledger)
        except BaseException as error:
            error.add_note(f"killed before sync {kill_at} of {total}")
            raise
