"""A process that ends at a named point around append, sync, commit, cut, checkpoint, dispatch.

Each point is met several times in a scripted life of a store. What the process leaves there, and
what a power cut there could leave, is recovered, continues, and is recovered again.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from roquet.runtime import failpoint
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.testing.files import QuickFiles, RecordingFiles
from tests.crash import harness
from tests.crash.harness import ASYNC, SYNC, Driver, Ledger, small_config

CONFIGS: dict[str, MessageStoreConfig] = {
    "sync": small_config(SYNC, segment_bytes=1 << 14),
    "pool": small_config(ASYNC, segment_bytes=1 << 14, pool=True),
}

NAMES = (
    "append.before",
    "append.body",
    "append.after",
    "sync.before",
    "sync.after",
    "commit.before",
    "truncate.before",
    "truncate.after",
    "checkpoint.before",
    "checkpoint.after",
    "dispatch.before",
    "dispatch.after",
)


class Crash(BaseException):
    """The process ends here."""


class Life:
    """A scripted life that meets every point; ``hits`` counts how often."""

    def __init__(self, root: Path, config: MessageStoreConfig) -> None:
        self.root = root
        self.clock = ManualClock()
        self.files = RecordingFiles(root)
        self.driver = Driver(root, config, self.files, self.clock)
        self.rng = random.Random(11)
        self.is_loading = False
        self.hits: Counter[str] = Counter()
        self.crash_at: tuple[str, int] | None = None

    def reached(self, name: str) -> None:
        self.hits[name] += 1
        if self.crash_at == (name, self.hits[name]):
            raise Crash(name)

    def run(self) -> None:
        for _ in range(3):
            self.load()
            for _ in range(3):
                self.driver.put([self.driver.ledger.make(self.rng) for _ in range(4)])
                self.driver.flush_log()
                self.clock.advance(61_000)
                self.driver.flush_logics()
                self.driver.put_batch(self.batch())
            self.driver.abandon()
        self.load()
        self.driver.flush_log()
        self.driver.store.shutdown()

    def load(self) -> None:
        self.is_loading = True
        self.driver.open(self.root, self.files)
        self.is_loading = False
        ledger = self.driver.ledger
        ledger.sent = ledger.sent[: harness.check_store(self.driver.store, ledger)]

    def batch(self) -> list[harness.Sent]:
        entries = [self.driver.ledger.make(self.rng) for _ in range(3)]
        for entry in entries:
            entry.topic, entry.queue_id = entries[0].key
        return entries


def live(root: Path, config: MessageStoreConfig, crash_at: tuple[str, int] | None = None) -> Life:
    life = Life(root, config)
    life.crash_at = crash_at
    with failpoint.installed(life.reached):
        if crash_at is None:
            life.run()
        else:
            with pytest.raises(Crash):
                life.run()
    return life


def go_on(store: DefaultMessageStore, ledger: Ledger, seed: int) -> None:
    """Append to a recovered store, so that old bytes after a cut would come into reach."""
    rng = random.Random(seed)
    for _ in range(6):
        entry = ledger.make(rng)
        ledger.begin([entry])
        store.submit(entry.message())
    store.finish_burst()
    store.flusher.flush_all()


def check_crashed(life: Life, image: Path, ledger: Ledger, kept_min: int) -> None:
    config = life.driver.config
    store = DefaultMessageStore(image, config, files=QuickFiles(), clock=life.clock)
    store.load()
    kept = harness.check_store(store, ledger)
    assert kept >= kept_min
    store.start(threads=False)
    after = Ledger(ledger.sent[:kept], sure=kept, numbers=10_000)
    go_on(store, after, seed=kept)
    harness.abandon(store)
    after.sure = len(after.sent)
    harness.recover(image, config, life.clock, after)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config_name", CONFIGS)
def test_recovery_from_a_crash_at(name: str, config_name: str, tmp_path: Path) -> None:
    config = CONFIGS[config_name]
    hits = live(tmp_path / "whole", config).hits[name]
    if name == "commit.before" and config_name != "pool":
        assert hits == 0, "only a transient pool commits"
        return
    assert hits >= 3, f"{name} is hardly met"
    for hit in sorted({1, 2, hits // 2, hits - 1, hits}):
        life = live(tmp_path / "life", config, (name, hit))
        ledger = life.driver.ledger
        if not life.is_loading:
            life.driver.note_safe()
        images = [tmp_path / f"image{number}" for number in range(4)]
        life.files.killed(images[0])
        for number, image in enumerate(images[1:]):
            life.files.image(random.Random(hit * 10 + number), image, by_sector=number == 1)
        kill_safe = ledger.copy()
        if not life.is_loading:
            kill_safe.note_safe(life.driver.store.commit_log.max_offset)
        for image, expected in zip(images, (kill_safe, ledger, ledger, ledger), strict=True):
            try:
                check_crashed(life, image, expected.copy(), expected.sure)
            except BaseException as error:
                error.add_note(f"{name} met for the {hit}. time, {image.name}")
                raise
            shutil.rmtree(image)
        life.driver.abandon()
        life.files.release()
        shutil.rmtree(life.root)
