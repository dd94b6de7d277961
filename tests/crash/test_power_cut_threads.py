"""Power cuts while the store's own threads sync, commit and allocate, and senders keep sending.

Which images these runs meet is up to the scheduler; what must hold for each of them is not:
everything acknowledged before the cut is there, and nothing that was never sent.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import structs

from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.testing.files import QuickFiles, RecordingFiles
from tests.crash import harness
from tests.crash.harness import SYNC, small_config
from tests.patience import NEVER_MS

SENDERS = 4
SENDS = 150
IMAGES = 10
TOPIC = "Threads"


@dataclass
class Senders:
    """Several senders at one store; one of them cuts the power now and then."""

    store: DefaultMessageStore
    files: RecordingFiles
    place: Path
    acked: set[bytes] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)
    images: list[tuple[Path, set[bytes]]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def run(self, number: int) -> None:
        rng = random.Random(number)
        try:
            for count in range(SENDS):
                self.send(rng, number, count)
                if number == 0 and count % (SENDS // IMAGES) == 0:
                    self.cut(rng)
        except BaseException as error:  # noqa: BLE001 - reported by the waiting thread
            self.errors.append(error)

    def send(self, rng: random.Random, number: int, count: int) -> None:
        body = f"{number}-{count}:".encode() + b"x" * rng.choice((0, 50, 700, 3000))
        self.sent.add(body)
        properties = encode_properties(
            {"KEYS": f"k{number}-{count}", "p": "v" * rng.randrange(600)}
        )
        result = self.store.put_message(BrokerMessage(TOPIC, number % 2, body, properties))
        assert result.is_ok, result
        self.acked.add(body)

    def cut(self, rng: random.Random) -> None:
        acked = set(self.acked)
        image = self.place / f"image{len(self.images)}"
        self.files.image(rng, image, by_sector=rng.random() < 0.5)
        self.images.append((image, acked))


def check_image(
    image: Path, config: MessageStoreConfig, acked: set[bytes], sent: set[bytes]
) -> None:
    store = DefaultMessageStore(image, config, files=QuickFiles())
    store.load()
    try:
        found = {message.body for message in harness.log_records(store)}
        assert acked <= found <= sent
        read = [m.body for queue in (0, 1) for m in harness.read_queue(store, (TOPIC, queue))]
        assert len(read) == len(found)
        assert set(read) == found
        store.start(threads=False)
    finally:
        store.shutdown()
    harness.check_files(image, config)


@pytest.mark.parametrize("segment_bytes", [1 << 14, 1 << 16])
def test_acknowledged_messages_survive_a_power_cut(segment_bytes: int, tmp_path: Path) -> None:
    # Images take their time, and waiters for a sync wait for them too.
    config = small_config(SYNC, segment_bytes=segment_bytes)
    config = structs.replace(config, sync_flush_timeout_ms=NEVER_MS)
    root = tmp_path / "store"
    files = RecordingFiles(root)
    store = DefaultMessageStore(root, config, files=files)
    store.load()
    store.start()
    senders = Senders(store, files, tmp_path)
    threads = [threading.Thread(target=senders.run, args=(n,)) for n in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.shutdown()
    files.release()
    assert not senders.errors, senders.errors[0]
    assert len(senders.images) == IMAGES
    for image, acked in senders.images:
        check_image(image, config, acked, senders.sent)
    check_image(root, config, senders.sent, senders.sent)
