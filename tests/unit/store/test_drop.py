"""Segments stored elsewhere are dropped from a stopped store, as if they had expired."""

from pathlib import Path

import pytest

from roquet.errors import StoreError, StoreLocked
from roquet.store.drop import drop_segments
from tests.unit.store.kit import SEGMENT_BYTES, bodies, message, opened, put


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with opened(tmp_path / "store") as store:
        for number in range(5):
            put(store, message(b"%d" % number * 10_000))
    return tmp_path / "store"


def segments(root: Path) -> list[int]:
    return sorted(int(path.name) // SEGMENT_BYTES for path in (root / "commitlog").iterdir())


def test_the_oldest_are_removed_and_queues_follow(root: Path) -> None:
    assert segments(root)[:5] == [0, 1, 2, 3, 4]
    dropped = drop_segments(root, 3 * SEGMENT_BYTES - 1)
    assert [int(name) for name in dropped] == [0, SEGMENT_BYTES]
    assert segments(root)[0] == 2
    with opened(root) as store:
        assert store.min_offset_in_queue("T", 0) == 2
        assert [body[:1] for body in bodies(store)] == [b"2", b"3", b"4"]
        put(store, message(b"5"))
        assert store.max_offset_in_queue("T", 0) == 6
    assert [body[:1] for body in _read(root)] == [b"2", b"3", b"4", b"5"]


def _read(root: Path) -> list[bytes]:
    with opened(root) as store:
        return bodies(store)


def test_the_newest_is_kept(root: Path) -> None:
    before = segments(root)
    drop_segments(root, 1 << 40)
    assert segments(root) == before[-1:]


def test_nothing_after_a_gap(root: Path) -> None:
    (root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()
    assert drop_segments(root, 4 * SEGMENT_BYTES) == []


def test_a_store_in_use_is_left_alone(root: Path) -> None:
    with opened(root), pytest.raises(StoreLocked):
        drop_segments(root, 1 << 40)


def test_a_store_that_was_killed_is_left_alone(root: Path) -> None:
    (root / "abort").write_text("1")
    with pytest.raises(StoreError, match="not closed cleanly"):
        drop_segments(root, 1 << 40)
    assert segments(root)[0] == 0
    (root / "abort").unlink()
    assert drop_segments(root, SEGMENT_BYTES)
