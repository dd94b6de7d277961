"""A power cut at any moment: torn and reordered pages, lost names, lost lengths.

Sessions of a store are driven by a seed. Between any two file calls of it, recovery included, an
image is built of what a power cut at that moment could leave. Each is recovered, compared with the
ledger of what was sent, and recovered a second time, which must give the same bytes.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from roquet.format.segment_files import file_name
from roquet.runtime import failpoint
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.mapped_file import MappedFile
from roquet.testing.files import RecordingFiles
from tests.campaign import sampled
from tests.crash import harness
from tests.crash.harness import ASYNC, SYNC, Driver, Ledger, Sent, small_config

ROUNDS = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
SESSIONS = 5 * ROUNDS
STEPS = 60
IMAGES_A_SESSION = 12
IMAGES_MIN = 7  # 30 sessions make more than 200 images

CONFIGS: dict[str, MessageStoreConfig] = {
    "sync": small_config(SYNC),
    "sync-crc-ext": small_config(SYNC, crc=True, ext=True, segment_bytes=1 << 16),
    "async": small_config(ASYNC),
    "async-ext": small_config(ASYNC, ext=True, index_entries=30),
    "async-pool": small_config(ASYNC, pool=True),
    "async-expire": small_config(ASYNC, reserved_hours=1, segment_bytes=1 << 14),
}


@dataclass
class Image:
    """A crashed store and what it may hold."""

    root: Path
    kind: str
    ledger: Ledger
    now_ms: int
    where: str


class Session:
    """One seeded life of a store, with images taken on the way."""

    def __init__(self, seed: int, config: MessageStoreConfig, place: Path, images: int) -> None:
        self.rng = random.Random(seed)
        self.image_rng = random.Random(seed + 1)
        self.config = config
        self.place = place
        self.clock = ManualClock()
        self.latest_ms = 0
        self.roots = 0
        self.images_left = images
        self.image_share = 0.0
        self.calls = 0
        self.examined = 0
        self.taken: list[Image] = []
        self.is_loading = False
        self.root = self.next_root()
        self.files = RecordingFiles(self.root, on_call=self.on_call)
        self.driver = Driver(self.root, config, self.files, self.clock)

    def next_root(self) -> Path:
        self.roots += 1
        return self.place / f"store{self.roots}"

    # -- images -----------------------------------------------------------------------------

    def on_call(self, number: int, name: str, path: Path) -> None:
        self.maybe_image(f"call {number} {name} {path.name}")

    def on_failpoint(self, name: str) -> None:
        self.maybe_image(f"fail point {name}")

    def maybe_image(self, where: str) -> None:
        self.calls += 1
        if self.images_left and self.image_rng.random() < self.image_share:
            self.images_left -= 1
            self.take_image(where)

    def take_image(self, where: str, kind: str | None = None) -> Image:
        kind = kind or self.image_rng.choice(("page", "page", "sector", "sector", "kill"))
        if not self.is_loading:
            self.driver.note_safe()
        ledger = self.driver.ledger.copy()
        if kind == "kill" and not self.is_loading:
            ledger.note_safe(self.driver.store.commit_log.max_offset)
        root = self.place / f"image{self.calls}-{len(self.taken)}"
        if kind == "kill":
            self.files.killed(root)
        else:
            self.files.image(self.image_rng, root, by_sector=kind == "sector")
        image = Image(root, kind, ledger, self.clock.now_ms(), where)
        self.taken.append(image)
        return image

    # -- steps ------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        self.load()
        for _ in range(steps):
            step = self.rng.choices(
                (
                    self.send, self.batch, self.burst, self.flush, self.logics, self.pass_time,
                    self.housekeeping, self.allocate_ahead, self.restart, self.kill,
                    self.power_cut, self.set_clock_back, self.truncate,
                ),
                (12, 3, 3, 6, 4, 5, 2, 1, 1, 1, 1, 1, 1),
            )[0]  # fmt: skip
            step()
            self.driver.note_safe()
            self.examine()
        self.driver.store.shutdown()
        self.take_image("after shutdown", "sector")
        self.driver.ledger.sure = len(self.driver.ledger.sent)
        self.take_image("after shutdown", "sector").ledger.sure = len(self.driver.ledger.sent)
        self.examine()
        self.files.release()

    def load(self) -> None:
        self.is_loading = True
        self.driver.open(self.root, self.files)
        self.is_loading = False
        ledger = self.driver.ledger
        kept = harness.check_store(self.driver.store, ledger)
        ledger.sent = ledger.sent[:kept]
        ledger.sure = kept

    def messages(self, count: int) -> list[Sent]:
        kinds = ("plain",) * 8 + ("prepared", "rollback", "delayed")
        return [
            self.driver.ledger.make(self.rng, kind=self.rng.choice(kinds)) for _ in range(count)
        ]

    def send(self) -> None:
        for entry in self.messages(self.rng.randrange(1, 8)):
            self.driver.submit([entry])
            self.clock.advance(self.rng.choice((0, 0, 1)))
        self.driver.store.finish_burst()

    def batch(self) -> None:
        first = self.driver.ledger.make(self.rng)
        entries = [first]
        for _ in range(self.rng.randrange(5)):
            other = self.driver.ledger.make(self.rng)
            entries.append(Sent(first.topic, first.queue_id, other.body, other.properties))
        self.driver.put_batch(entries)

    def burst(self) -> None:
        self.driver.put_burst(self.messages(self.rng.randrange(1, 12)))

    def flush(self) -> None:
        if self.rng.random() < 0.5:
            self.clock.advance(10_001)
        self.driver.flush_log()

    def logics(self) -> None:
        if self.rng.random() < 0.5:
            self.clock.advance(60_001)
        self.driver.flush_logics()

    def housekeeping(self) -> None:
        self.clock.advance(10_001)
        for path in (self.root / "commitlog").iterdir():
            os.utime(path, (self.clock.now_ms() / 1000 - 1800 * self.rng.randrange(4),) * 2)
        self.driver.housekeeping()

    def pass_time(self) -> None:
        self.clock.advance(self.rng.choice((1, 500, 3001, 3_600_000)))

    def allocate_ahead(self) -> None:
        """What the allocator's thread does: make the segments after the last one."""
        queue = self.driver.store.commit_log.queue
        if queue.last is None:
            return
        start = queue.last.end_offset
        for _ in range(self.rng.randrange(1, 3)):
            path = queue.root / file_name(start)
            MappedFile.create(
                self.files, path, start_offset=start, size_bytes=queue.size_bytes
            ).close()
            start += queue.size_bytes

    def restart(self) -> None:
        self.driver.store.shutdown()
        self.driver.ledger.sure = len(self.driver.ledger.sent)
        self.load()

    def kill(self) -> None:
        """A killed process, then a new one on the same machine: nothing is synced between."""
        expected = self.driver.ledger.copy()
        expected.note_safe(self.driver.store.commit_log.max_offset)
        self.driver.abandon()
        self.load()
        assert len(self.driver.ledger.sent) >= expected.sure, "a killed process lost something"

    def power_cut(self) -> None:
        image = self.take_image("power cut", self.rng.choice(("page", "sector")))
        self.taken.pop()
        self.driver.abandon()
        self.files.release()
        self.root = self.next_root()
        image.root.rename(self.root)
        self.files = RecordingFiles(self.root, on_call=self.on_call)
        self.load()

    def set_clock_back(self) -> None:
        """As a time server may do; store times stand still until the clock has caught up.

        More than a minute before the newest record a store would refuse to open.
        """
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())
        earlier_ms = self.clock.now_ms() - self.rng.choice((1, 1000, 30_000))
        self.clock.set(max(earlier_ms, self.latest_ms - 50_000))

    def truncate(self) -> None:
        """Cut the end off on purpose, as a replica does that has run ahead of its master."""
        store, ledger = self.driver.store, self.driver.ledger
        store.flusher.flush_all()
        ends = sorted({sent.end_offset for sent in ledger.sent})
        ends = [end for end in ends if end > store.commit_log.min_offset][-6:]
        if not ends:
            return
        end = self.rng.choice(ends)
        kept = max(number for number, s in enumerate(ledger.sent, 1) if s.end_offset == end)
        ledger.sure = min(ledger.sure, kept)
        self.is_loading = True
        store.truncate_to(min(end, store.commit_log.wrote_offset))
        self.is_loading = False
        ledger.sent = ledger.sent[:kept]
        harness.check_store(store, ledger)

    # -- what the images hold -----------------------------------------------------------------

    def examine(self) -> None:
        taken, self.taken = self.taken, []
        for image in taken:
            try:
                self.examine_one(image)
            except BaseException as error:
                error.add_note(f"image: {image.kind} at {image.where}")
                raise
            shutil.rmtree(image.root)

    def examine_one(self, image: Image) -> None:
        self.examined += 1
        clock = ManualClock(image.now_ms)
        copies = [
            harness.copy_tree(image.root, image.root.with_suffix(f".{number}"))
            for number in range(2)
        ]
        kept = harness.recover(copies[0], self.config, clock, image.ledger)
        first = harness.digest(copies[0])
        assert harness.recover(copies[1], self.config, clock, image.ledger) == kept
        assert harness.digest(copies[1]) == first, "two recoveries of one image differ"
        assert harness.recover(copies[0], self.config, clock, image.ledger) == kept
        assert harness.digest(copies[0]) == first, "a second recovery changed something"
        for copy in copies:
            shutil.rmtree(copy)


@pytest.mark.parametrize("number", sampled(range(SESSIONS)))
@pytest.mark.parametrize("name", CONFIGS)
def test_every_image_recovers(name: str, number: int, seed: int, tmp_path: Path) -> None:
    session_seed = seed * 1000 + number
    session = Session(session_seed, CONFIGS[name], tmp_path, IMAGES_A_SESSION)
    session.image_share = 0.03
    try:
        with failpoint.installed(session.on_failpoint):
            session.run(STEPS)
        assert session.examined >= IMAGES_MIN, "hardly any image was taken"
    except BaseException as error:
        error.add_note(
            f"repeat: ROQUET_TEST_SEED={seed} ROQUET_CRASH_ROUNDS={ROUNDS} pytest "
            f"'tests/crash/test_power_cut.py::test_every_image_recovers[{name}-{number}]'"
        )
        raise
