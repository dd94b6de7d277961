"""The small files of delays and transactions, in states that crashes and restores leave.

The log decides what exists; these files only record the progress of the work on it. Whatever they
hold, no pending message is lost, nothing is delivered early, and the work continues.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roquet.errors import ConfigError, StoreDamaged
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from roquet.runtime.files import Files
from tests.crash.services_kit import Life
from tests.unit.broker.service.transaction_kit import COMMIT, ROLLBACK

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@contextmanager
def life(root: Path, now_ms: int = NOW_MS) -> Iterator[Life]:
    """A run that ends like a kill: nothing more is written."""
    made = Life(root, "async", Files(), now_ms)
    try:
        yield made
    finally:
        made.services.checks.stop()
        made.services.schedule.stop()
        made.store.flush()
        made.store.shutdown()


def delay(made: Life, key: str, level: int = 1) -> None:
    text = f"UNIQ_KEY\x01{key}\x02DELAY\x01{level}\x02REAL_TOPIC\x01D\x02REAL_QID\x010\x02"
    made.put(SCHEDULE_TOPIC, level - 1, text, key.encode())


def half(made: Life, key: str) -> None:
    text = f"UNIQ_KEY\x01{key}\x02PGROUP\x01P\x02REAL_TOPIC\x01C\x02REAL_QID\x010\x02"
    made.put(TRANS_HALF_TOPIC, 0, text, key.encode())


def delivered(made: Life) -> list[str]:
    return [message.body.decode() for message in made.messages("D")]


def asked(made: Life) -> set[str | None]:
    return {header.msg_id for header, _ in made.producer.asked}


def offsets_file(root: Path) -> Path:
    return root / "config" / "delayOffset.json"


def two_deliveries(root: Path) -> Path:
    """A store with two messages delivered, each followed by a write of the offsets."""
    with life(root) as made:
        for key in ("a", "b"):
            delay(made, key)
            made.timers.advance(1_000)
            made.delays.persist()
        delay(made, "c")
        assert delivered(made) == ["a", "b"]
    return offsets_file(root)


def test_an_older_file_causes_redelivery(tmp_path: Path) -> None:
    path = two_deliveries(tmp_path)
    shutil.copy(f"{path}.bak", path)
    with life(tmp_path, NOW_MS + 3_000) as made:
        made.timers.advance(1_000)
        assert delivered(made) == ["a", "b", "b", "c"]
        assert made.delays.table == {1: 3}


def test_an_offset_beyond_the_queue_loses_no_new_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = two_deliveries(tmp_path)
    path.write_text(path.read_text().replace("1:2", "1:77"))
    with life(tmp_path, NOW_MS + 3_000) as made:
        made.timers.advance(1_000)
        delay(made, "d")
        made.timers.advance(1_000)
        assert delivered(made) == ["a", "b", "d"]
        assert made.delays.table == {1: 4}
    assert "delay level 1 continues at 3: 77 is not between 0 and 3" in caplog.text


def test_a_missing_file_causes_redelivery_of_all_messages(tmp_path: Path) -> None:
    path = two_deliveries(tmp_path)
    path.unlink()
    Path(f"{path}.bak").unlink()
    with life(tmp_path, NOW_MS + 3_000) as made:
        made.timers.advance(1_000)
        assert delivered(made) == ["a", "b", "a", "b", "c"]


@pytest.mark.parametrize(
    "damage", [b"", b"\0" * 300, b"{", b'{"offsetTable":[]}', b'{"offsetTable":{1:"x"}}', None]
)
def test_a_damaged_file_is_replaced_by_its_backup(damage: bytes | None, tmp_path: Path) -> None:
    path = two_deliveries(tmp_path)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    with life(tmp_path, NOW_MS + 3_000) as made:
        made.timers.advance(1_000)
        assert delivered(made) == ["a", "b", "b", "c"]
        made.delays.persist()
    assert "1:3" in path.read_text()


def test_a_broker_does_not_start_when_file_and_backup_are_damaged(tmp_path: Path) -> None:
    path = two_deliveries(tmp_path)
    for each in (path, Path(f"{path}.bak")):
        each.write_text("{")
    with pytest.raises(ConfigError, match=r"Neither delayOffset\.json nor its backup"):
        Life(tmp_path, "async", Files(), NOW_MS)
    assert path.read_text() == "{"


def test_offsets_that_no_queue_has_are_ignored(tmp_path: Path) -> None:
    path = two_deliveries(tmp_path)
    path.write_text('{"offsetTable":{0:5,-3:1,2:-9,900:4,1:2}}')
    with life(tmp_path, NOW_MS + 3_000) as made:
        delay(made, "five", level=2)
        made.timers.advance(6_000)
        assert delivered(made) == ["a", "b", "c", "five"]


def test_a_half_offset_beyond_the_queue_hides_no_new_message(tmp_path: Path) -> None:
    with life(tmp_path) as made:
        half(made, "old")
        made.timers.advance(8_000)
        assert asked(made) == {"old"}
        made.offsets.commit("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0, 400)
        made.offsets.commit("CID_RMQ_SYS_TRANS", TRANS_OP_HALF_TOPIC, 0, 900)
        made.offsets.persist()
    with life(tmp_path, NOW_MS + 10_000) as made:
        made.timers.advance(8_000)
        half(made, "new")
        made.timers.advance(16_000)
        assert "new" in asked(made)


def test_without_offsets_all_half_messages_are_checked_again(tmp_path: Path) -> None:
    with life(tmp_path) as made:
        for key in ("committed", "rolled back", "open"):
            half(made, key)
        first, second, _ = made.messages(TRANS_HALF_TOPIC)
        made.end(first, COMMIT)
        made.end(second, ROLLBACK)
        made.timers.advance(8_000)
        assert asked(made) == {"open"}
        made.offsets.persist()
    shutil.rmtree(tmp_path / "config")
    with life(tmp_path, NOW_MS + 10_000) as made:
        made.timers.advance(16_000)
        assert asked(made) == {"open"}
        assert [message.body for message in made.messages("C")] == [b"committed"]


def test_transactions_whose_end_was_not_written_are_checked_again(tmp_path: Path) -> None:
    with life(tmp_path) as made:
        for key in ("committed", "rolled back"):
            half(made, key)
        first, second = made.messages(TRANS_HALF_TOPIC)
        made.end(first, COMMIT)
        made.end(second, ROLLBACK)
    with life(tmp_path, NOW_MS + 10_000) as made:
        made.timers.advance(16_000)
        assert asked(made) == {"committed", "rolled back"}
        assert len(made.messages("C")) == 1


def test_an_op_message_with_unknown_offsets_ends_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with life(tmp_path) as made:
        half(made, "open")
        made.put(TRANS_OP_HALF_TOPIC, 0, "TAGS\x01d\x02", b"7,8,99999999999999999999,")
        made.timers.advance(20_000)
        assert asked(made) == {"open"}
        made.offsets.persist()
    with life(tmp_path, NOW_MS + 30_000) as made:
        made.timers.advance(16_000)
        assert asked(made) == {"open"}
    assert caplog.text == ""


def test_a_clock_that_was_set_forward_while_the_broker_was_down(tmp_path: Path) -> None:
    with life(tmp_path) as made:
        for level in (1, 2):
            delay(made, f"{level}", level)
        half(made, "open")
    with life(tmp_path, NOW_MS + HOUR_MS) as made:
        made.timers.advance(0)
        assert sorted(delivered(made)) == ["1", "2"]
        made.timers.advance(16_000)
        assert asked(made) == {"open"}


def test_a_store_newer_than_the_clock_is_left_unchanged(tmp_path: Path) -> None:
    """With the clock set back, pending messages would come late, or at once as with upstream."""
    with life(tmp_path) as made:
        delay(made, "1")
    with pytest.raises(StoreDamaged, match="newer than this machine's clock"):
        Life(tmp_path, "async", Files(), NOW_MS - HOUR_MS)
    with life(tmp_path, NOW_MS + 1_000) as made:
        made.timers.advance(0)
        assert delivered(made) == ["1"]
