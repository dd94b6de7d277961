"""A failed sync is fatal: Linux forgets the lost pages, and a second sync would succeed."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path

import pytest
from msgspec import structs

from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.queue_reader import ReadRequest
from roquet.store.results import PutMessageResult, PutMessageStatus
from roquet.store.running_flags import RunningFlag
from roquet.testing.files import FaultyFiles
from tests.crash import harness
from tests.crash.harness import ASYNC, SYNC, Driver, small_config
from tests.patience import NEVER_MS

CONFIGS = {
    "sync": small_config(SYNC, segment_bytes=1 << 14),
    "async": small_config(ASYNC, segment_bytes=1 << 14),
    "pool": small_config(ASYNC, segment_bytes=1 << 14, pool=True),
}


def failing_next_sync(files: FaultyFiles) -> None:
    """Let the next call that counts, a sync of bytes, fail."""
    files.fail_at = len(files.calls) + 1


def open_driver(root: Path, name: str) -> tuple[Driver, FaultyFiles]:
    files = FaultyFiles(error=errno.EIO, only=frozenset({"data_sync"}))
    driver = Driver(root, CONFIGS[name], files, ManualClock())
    driver.open(root, files)
    return driver, files


@pytest.mark.parametrize("what", ["log", "logics"])
@pytest.mark.parametrize("name", CONFIGS)
def test_after_a_failed_sync_nothing_is_acknowledged(name: str, what: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    driver, files = open_driver(root, name)
    rng = random.Random(1)
    driver.put([driver.ledger.make(rng) for _ in range(5)])
    driver.store.flusher.flush_all()
    driver.note_safe()
    driver.put([driver.ledger.make(rng) for _ in range(5)])
    acked = [sent.acked for sent in driver.ledger.sent]
    failing_next_sync(files)
    if what == "log":
        driver.store.flusher.flush_all()
    else:
        driver.clock.advance(61_000)
        driver.flush_logics()
    assert files.failed is not None
    assert [error.errno for error in driver.fatal] == [errno.EIO], "reported once"
    assert driver.store.flags.has(RunningFlag.FLUSH_FAILED)
    files.heal()

    syncs = len(files.calls)
    refused: list[PutMessageResult] = []
    for _ in range(3):
        driver.store.submit(driver.ledger.make(rng).message(), refused.append)
        driver.store.finish_burst()
        if what == "log":
            driver.clock.advance(61_000)
            driver.store.flusher._flush_round()
        driver.flush_logics()
    assert {result.status for result in refused} == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
    assert "FLUSH_FAILED" in refused[0].detail
    assert len(files.calls) == syncs, "a failed sync was retried"
    if name == "sync":
        assert [sent.acked for sent in driver.ledger.sent] == acked
    for sent in driver.ledger.sent[:5]:
        driver.store.reader.get_message(ReadRequest(*sent.key, 0, 32))

    driver.store.shutdown()
    assert (root / "abort").exists(), "the next start must recover"
    assert len(driver.fatal) == 1
    harness.recover(root, driver.config, driver.clock, driver.ledger)


def test_waiters_get_the_error(tmp_path: Path) -> None:
    """With threads: the sender gets a response, and it is an error."""
    fatal: list[OSError] = []
    is_told = threading.Event()

    def on_fatal(error: OSError) -> None:
        fatal.append(error)
        is_told.set()

    class Failing(Files):
        is_failing = False

        def data_sync(self, fd: int) -> None:
            if self.is_failing:
                raise OSError(errno.EIO, "made up")
            super().data_sync(fd)

    files = Failing()
    config = structs.replace(small_config(SYNC), sync_flush_timeout_ms=NEVER_MS)
    store = DefaultMessageStore(tmp_path / "store", config, files=files, on_fatal=on_fatal)
    store.load()
    store.start()
    ledger = harness.Ledger()
    rng = random.Random(2)
    assert store.put_message(ledger.make(rng).message()).is_ok
    files.is_failing = True
    answer = store.put_message(ledger.make(rng).message())
    assert answer.status is PutMessageStatus.UNKNOWN_ERROR
    is_told.wait()
    assert [error.errno for error in fatal] == [errno.EIO]
    again = store.put_message(ledger.make(rng).message())
    assert again.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    files.is_failing = False
    store.shutdown()
    assert (tmp_path / "store" / "abort").exists()
