"""What a slave's store lets it report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.ha.follower import StoreReplica
from roquet.store.config import BrokerRole, FlushDiskType
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.flush import FlushCommitLog
from tests.unit.store.kit import config, message, opened, put

SLAVE = config(broker_role=BrokerRole.SLAVE, flush_disk_type=FlushDiskType.SYNC_FLUSH)


@pytest.fixture
def records(tmp_path: Path) -> bytes:
    """Two records of the same size."""
    with opened(tmp_path / "master") as master:
        put(master, message(b"a" * 100), message(b"b" * 100))
        return bytes(master.commit_log_data(0) or b"")


@pytest.fixture
def slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DefaultMessageStore]:
    """A slave with SYNC_FLUSH, whose flusher is not woken."""
    monkeypatch.setattr(FlushCommitLog, "request", lambda _: None)
    with opened(tmp_path / "slave", config=SLAVE) as slave:
        yield slave


def test_what_is_compared_is_on_disk(slave: DefaultMessageStore, records: bytes) -> None:
    slave.append_to_commit_log(0, records)
    assert StoreReplica(slave).tail() == (len(records), records[1:])
    assert slave.flushed_offset == len(records)


def test_a_corrupted_record_is_not_reported(slave: DefaultMessageStore, records: bytes) -> None:
    corrupted = bytearray(records)
    corrupted[records.rindex(b"b")] ^= 1
    replica = StoreReplica(slave)
    slave.append_to_commit_log(0, bytes(corrupted))
    slave.flush()
    assert slave.flushed_offset == len(records)
    assert replica.safe_offset == len(records) // 2
    with pytest.raises(StoreError):
        replica.append(len(records), memoryview(b"more"))
