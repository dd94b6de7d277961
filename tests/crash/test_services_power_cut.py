"""A power cut, or a kill, in the middle of delays and transactions.

A broker's services run on a recording disk, driven by a seed. Between any two file calls an image
is built of what a power cut at that moment could leave. A broker that starts from the image must
deliver every delayed message that was on the disk, at its time or later, and must ask about, or
have committed, every half message that was.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from roquet.model.delay_level import DelayLevels
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from roquet.runtime.files import Files
from roquet.testing.files import RecordingFiles
from tests.campaign import sampled
from tests.crash.services_kit import CONFIGS, Life
from tests.unit.broker.service.transaction_kit import COMMIT, ROLLBACK

ROUNDS = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
STEPS = 80
IMAGES = 8
LEVELS = DelayLevels()


@dataclass(frozen=True)
class Written:
    """A message that was handed to the store."""

    key: str
    is_half: bool
    end_offset: int


@dataclass(frozen=True)
class Image:
    root: Path
    now_ms: int
    safe: list[Written]
    rolled_back: frozenset[str]


class Session:
    """A seeded life, with images taken on the way."""

    def __init__(self, seed: int, name: str, place: Path) -> None:
        self.rng = random.Random(seed)
        self.image_rng = random.Random(seed + 1)
        self.place = place
        self.name = name
        self.written: list[Written] = []
        self.rolled_back: set[str] = set()
        self.images: list[Image] = []
        self.life: Life | None = None
        self.files = RecordingFiles(place / "store", on_call=self.on_call)
        self.life = Life(place / "store", name, self.files, 1_700_000_000_000)

    def on_call(self, number: int, name: str, path: Path) -> None:
        del number, name, path
        if self.life is not None and self.image_rng.random() < 0.04 and len(self.images) < IMAGES:
            self.take_image()

    def take_image(self) -> None:
        assert self.life is not None
        root = self.place / f"image{len(self.images)}"
        kind = self.image_rng.choice(("page", "sector", "kill"))
        safe_offset = self.life.store.flushed_offset
        if kind == "kill":
            self.files.killed(root)
            safe_offset = self.life.store.max_physical_offset
        else:
            self.files.image(self.image_rng, root, by_sector=kind == "sector")
        safe = [each for each in self.written if each.end_offset <= safe_offset]
        image = Image(root, self.life.clock.now_ms(), safe, frozenset(self.rolled_back))
        self.images.append(image)

    def step(self, number: int) -> None:
        assert self.life is not None
        life, key = self.life, f"K{number}"
        match self.rng.choice("dddhhhheeetttffp"):
            case "d":
                level = self.rng.randint(1, 3)
                text = (
                    f"UNIQ_KEY\x01{key}\x02DELAY\x01{level}\x02REAL_TOPIC\x01D\x02REAL_QID\x010\x02"
                )
                end = life.put(SCHEDULE_TOPIC, level - 1, text, key.encode())
                self.written.append(Written(key, is_half=False, end_offset=end))
            case "h":
                text = (
                    f"UNIQ_KEY\x01{key}\x02PGROUP\x01P\x02TRAN_MSG\x01true\x02"
                    "REAL_TOPIC\x01C\x02REAL_QID\x010\x02"
                )
                end = life.put(TRANS_HALF_TOPIC, 0, text, key.encode())
                self.written.append(Written(key, is_half=True, end_offset=end))
            case "e":
                halves = life.messages(TRANS_HALF_TOPIC)
                if halves:
                    half = self.rng.choice(halves)
                    verdict = self.rng.choice((COMMIT, ROLLBACK))
                    if verdict == ROLLBACK:
                        self.rolled_back.add(half.unique_key or "")
                    life.end(half, verdict)
            case "t":
                life.timers.advance(self.rng.choice((10, 500, 1_500, 6_000)))
            case "f":
                life.store.flush()
            case "p":
                for table in life.tables:
                    table.persist()

    def run(self) -> None:
        assert self.life is not None
        for number in range(STEPS):
            self.step(number)
        self.life.services.stop()
        self.life.store.flush()
        if not self.images:
            self.take_image()
        self.life.store.shutdown()
        self.files.release()


def check(image: Image, name: str) -> None:
    """Start from an image, and let enough time pass for everything to come due."""
    life = Life(image.root, name, Files(), image.now_ms)
    try:
        for _ in range(20):
            life.timers.advance(2_000)
            life.store.flush()  # with SYNC_FLUSH no reader sees what is not on disk
        delivered = life.messages("D")
        committed = {message.unique_key for message in life.messages("C")}
        asked = {header.msg_id for header, _ in life.producer.asked}
        due_ms: dict[str | None, int] = {}
        for level in (1, 2, 3):
            for message in life.messages(SCHEDULE_TOPIC, level - 1):
                due = LEVELS.deliver_timestamp_ms(level, message.store_timestamp_ms)
                due_ms[message.unique_key] = due
        keys = {message.unique_key for message in delivered}
        for written in image.safe:
            if not written.is_half:
                assert written.key in keys, f"{written.key} is lost"
            elif written.key not in image.rolled_back:
                assert written.key in committed | asked, f"{written.key} is forgotten"
        for message in delivered:
            assert message.store_timestamp_ms >= due_ms[message.unique_key], "too early"
        life.services.stop()
    finally:
        life.store.shutdown()
        shutil.rmtree(image.root)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", sampled(range(4 * ROUNDS)))
def test_nothing_is_lost_or_early_after_a_power_cut(seed: int, name: str, tmp_path: Path) -> None:
    session = Session(seed, name, tmp_path)
    session.run()
    for image in session.images:
        check(image, name)
