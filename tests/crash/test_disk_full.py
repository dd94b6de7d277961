"""A full disk: writes are refused, reads continue, nothing is killed, writes resume with room."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.runtime.clock import ManualClock
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.queue_reader import ReadRequest
from roquet.store.results import PutMessageStatus
from roquet.testing.files import FaultyFiles
from tests.crash import full_disk, harness
from tests.crash.harness import ASYNC, SYNC, Driver, small_config

CONFIGS = {
    "sync": small_config(SYNC, segment_bytes=1 << 13, index_entries=12),
    "async-ext": small_config(ASYNC, segment_bytes=1 << 13, index_entries=12, ext=True),
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "roquet-test", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("scenario", ["log", "queues", "sparse"])
def test_a_real_disk_fills_up(scenario: str, small_disk: Path) -> None:
    root = small_disk / "store"
    done = subprocess.run(
        [sys.executable, full_disk.__file__, str(root), scenario],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr}"
    answer = json.loads(done.stdout)
    assert answer["first"] > 50
    assert answer["readable_when_full"] >= answer["acked_when_full"] - 10
    assert answer["second"] > 50, "writes did not resume when there was room"
    store = DefaultMessageStore(root, full_disk.config_of(), clock=ManualClock())
    store.load()
    try:
        stored = {
            (message.queue_id, message.body[:6].decode()) for message in harness.log_records(store)
        }
        assert {(queue, value) for queue, value in answer["acked"]} <= stored
        for queue in {queue for queue, _ in stored}:
            harness.read_queue(store, ("Full", queue))
    finally:
        store.shutdown()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_disk_may_fill_up_at_any_call(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    only = frozenset({"create", "make_dir", "allocate", "truncate", "write_at"})
    for fail_at in range(15, 175, 8):
        root = tmp_path / f"store{fail_at}"
        files = FaultyFiles(fail_at=fail_at, error=errno.ENOSPC, and_after=True, only=only)
        driver = Driver(root, config, files, ManualClock())
        rng = random.Random(fail_at)
        driver.open(root, files)
        while files.failed is None:
            driver.put([driver.ledger.make(rng) for _ in range(3)])
            driver.flush_log()
        refused = [refused_put(driver, rng) for _ in range(20)]
        assert refused[-1] in {
            PutMessageStatus.SERVICE_NOT_AVAILABLE,
            PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
        }
        for sent in driver.ledger.sent:
            driver.store.reader.get_message(ReadRequest(*sent.key, 0, 32))
        files.heal()
        driver.clock.advance(10_001)
        driver.housekeeping()
        driver.flush_log()
        assert refused_put(driver, rng) is None, "writes did not resume when there was room"
        harness.check_store(driver.store, driver.ledger)
        driver.store.shutdown()
        harness.recover(root, config, driver.clock, driver.ledger)


def refused_put(driver: Driver, rng: random.Random) -> PutMessageStatus | None:
    """Send one message of 3 KB; why it was refused."""
    entry = driver.ledger.make(rng)
    entry.body = entry.body[:9] + b"y" * 3000
    statuses: list[PutMessageStatus] = []
    driver.ledger.begin([entry])
    driver.store.submit(entry.message(), lambda result: statuses.append(result.status))
    if statuses:
        driver.ledger.refused([entry])
        return statuses[0]
    entry.end_offset = driver.store.commit_log.wrote_offset
    driver.store.finish_burst()
    driver.store.flusher.flush_all()
    driver.note_safe()
    return None if statuses == [PutMessageStatus.PUT_OK] else statuses[0]
