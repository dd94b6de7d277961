"""Opening, walking, summarizing and dumping a store from outside."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.model import sys_flag as flags
from roquet.runtime.clock import ManualClock
from roquet.store.inspect.dump import Dump, Selection, to_dumped
from roquet.store.inspect.info import StoreInfo, gather_info
from roquet.storefiles.view import StoreView
from tests.unit.store.synthetic import NOW_MS, Placed, SyntheticStore, flip_bit
from tests.unit.storefiles.kit import SEGMENT_BYTES, ReadOnlyFiles, fill


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    made = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(made)
    return made


@pytest.fixture
def view(store: SyntheticStore) -> Iterator[StoreView]:
    with StoreView(ReadOnlyFiles(), store.root) as opened:
        yield opened


# -- info ---------------------------------------------------------------------------------------


def info_of(root: Path, now_ms: int = NOW_MS) -> StoreInfo:
    with StoreView(ReadOnlyFiles(), root) as view:
        return gather_info(view, ManualClock(now_ms))


def test_info(store: SyntheticStore) -> None:
    info = info_of(store.root)
    assert (info.state, info.lock_holder) == ("clean", None)
    assert (info.min_physical_offset, info.max_physical_offset) == (0, store.log_end)
    assert info.segment_bytes == SEGMENT_BYTES
    assert info.segments[0].first_store_timestamp == store.placed[0].store_timestamp_ms
    assert info.segments[-1].last_physical_offset == store.placed[-1].physical_offset
    assert {topic.topic: topic.message_count for topic in info.topics} == {
        "Orders": 20,
        "Parts": 10,
    }
    queue = next(q for q in info.queues if (q.topic, q.queue_id) == ("Parts", 0))
    own = [p for p in store.placed if (p.topic, p.queue_id) == ("Parts", 0)]
    assert (queue.min_queue_offset, queue.max_queue_offset) == (0, len(own))
    assert queue.min_physical_offset == own[0].physical_offset
    assert queue.max_physical_offset == own[-1].physical_offset
    assert sum(file.entry_count for file in info.index_files) == 90
    assert info.checkpoint is not None
    assert info.checkpoint.physic_msg_timestamp == store.time_ms
    assert [file.name for file in info.config_files] == ["topics.json"]
    assert info.total_bytes == sum(p.stat().st_size for p in store.root.rglob("*") if p.is_file())
    assert (info.problems, info.warnings) == ([], [])


def test_info_of_a_store_with_an_expired_head(store: SyntheticStore) -> None:
    (store.root / "commitlog" / f"{0:020d}").unlink()
    info = info_of(store.root)
    own = [p for p in store.placed if (p.topic, p.queue_id) == ("Orders", 1)]
    left = [p for p in own if p.physical_offset >= SEGMENT_BYTES]
    queue = next(q for q in info.queues if (q.topic, q.queue_id) == ("Orders", 1))
    assert (queue.min_queue_offset, queue.max_queue_offset) == (left[0].queue_offset, len(own))
    assert queue.min_physical_offset == left[0].physical_offset


def test_info_reports_what_is_wrong(store: SyntheticStore) -> None:
    (store.root / "commitlog" / "stray").write_bytes(b"")
    (store.root / "index" / "stray").write_bytes(b"")
    config = store.root / "config"
    (config / "topics.json.bak").write_bytes((config / "topics.json").read_bytes())
    (config / "topics.json").write_text("{")
    (config / "delayOffset.json").write_text("{")
    info = info_of(store.root, now_ms=store.placed[0].store_timestamp_ms)
    messages = [problem.message for problem in info.problems]
    assert len(messages) == 4
    assert all(problem.detail and problem.hint for problem in info.problems)
    hints = {problem.message: problem.hint for problem in info.problems}
    assert "falls back to topics.json.bak" in (hints["config/topics.json cannot be read"] or "")
    assert "no readable backup" in (hints["config/delayOffset.json cannot be read"] or "")
    assert len(info.warnings) == 1
    assert "clock" in info.warnings[0]


def test_info_of_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    info = info_of(tmp_path)
    assert (info.segments, info.queues, info.index_files, info.checkpoint) == ([], [], [], None)
    assert (info.min_physical_offset, info.max_physical_offset) == (0, 0)


# -- dump ---------------------------------------------------------------------------------------


def dumped(root: Path, selection: Selection) -> tuple[list[int], list[str], str]:
    warnings: list[str] = []
    with StoreView(ReadOnlyFiles(), root) as view:
        dump = Dump(view, selection, warnings.append)
        offsets = [message.physical_offset for message in dump.messages()]
        assert dump.damage_count == len(warnings)
        return offsets, warnings, dump.way


def chosen(store: SyntheticStore, admits: object) -> list[int]:
    assert callable(admits)
    return [placed.physical_offset for placed in store.placed if admits(placed)]


def test_dump_of_everything(store: SyntheticStore) -> None:
    offsets, warnings, way = dumped(store.root, Selection())
    assert offsets == [placed.physical_offset for placed in store.placed]
    assert (warnings, way) == ([], "walk")


def test_dump_filters(store: SyntheticStore) -> None:
    low, high = store.placed[9], store.placed[21]
    cases: list[tuple[Selection, object]] = [
        (Selection(topics=frozenset({"Parts"})), lambda p: p.topic == "Parts"),
        (Selection(topics=frozenset({"Parts", "Orders"})), lambda _: True),
        (Selection(queue_id=1), lambda p: p.queue_id == 1),
        (
            Selection(from_physical_offset=low.physical_offset),
            lambda p: p.physical_offset >= low.physical_offset,
        ),
        (
            Selection(to_physical_offset=high.physical_offset),
            lambda p: p.physical_offset <= high.physical_offset,
        ),
        (
            Selection(from_ms=low.store_timestamp_ms, to_ms=high.store_timestamp_ms),
            lambda p: low.store_timestamp_ms <= p.store_timestamp_ms <= high.store_timestamp_ms,
        ),
        (Selection(from_queue_offset=2, to_queue_offset=4), lambda p: 2 <= p.queue_offset <= 4),
        (Selection(limit=0), lambda _: False),
    ]
    for selection, admits in cases:
        offsets, warnings, way = dumped(store.root, selection)
        assert offsets == chosen(store, admits), selection
        assert (warnings, way) == ([], "walk")
    assert dumped(store.root, Selection(limit=7))[0] == [
        p.physical_offset for p in store.placed[:7]
    ]


def test_dump_through_the_queue(store: SyntheticStore) -> None:
    selection = Selection(
        topics=frozenset({"Orders"}), queue_id=1, from_queue_offset=3, to_queue_offset=6
    )

    def admits(placed: Placed) -> bool:
        key = (placed.topic, placed.queue_id)
        return key == ("Orders", 1) and 3 <= placed.queue_offset <= 6

    offsets, warnings, way = dumped(store.root, selection)
    assert (offsets, warnings, way) == (chosen(store, admits), [], "consumequeue")
    (store.root / "commitlog" / f"{0:020d}").unlink()
    offsets, warnings, _ = dumped(store.root, selection)
    assert offsets == [o for o in chosen(store, admits) if o >= SEGMENT_BYTES]
    assert warnings == []


def test_dump_does_without_a_queue_it_cannot_trust(store: SyntheticStore) -> None:
    selection = Selection(topics=frozenset({"Orders"}), queue_id=1, from_queue_offset=3)
    expected = dumped(store.root, selection)[0]
    (store.root / "consumequeue" / "Orders" / "1" / "stray").write_bytes(b"")
    offsets, _, way = dumped(store.root, selection)
    assert (offsets, way) == (expected, "walk")


def test_dump_by_key(store: SyntheticStore) -> None:
    orders = frozenset({"Orders"})
    for key, numbers in (("k8", [8]), ("group3", [3, 8, 13, 18, 23, 28]), ("nobody", [])):
        selection = Selection(topics=orders, key=key)
        offsets, warnings, way = dumped(store.root, selection)
        expected = [
            store.placed[number].physical_offset
            for number in numbers
            if store.placed[number].topic == "Orders"
        ]
        assert (offsets, warnings, way) == (expected, [], "index")
    unique = f"7F0000010001{10:020X}"
    assert dumped(store.root, Selection(key=unique)) == (
        [store.placed[10].physical_offset],
        [],
        "walk",
    )


def test_dump_by_key_where_the_index_ends_early(store: SyntheticStore) -> None:
    """Records beyond the index are read from the log."""
    names = sorted((store.root / "index").iterdir())
    names[-1].unlink()
    selection = Selection(topics=frozenset({"Orders"}), key="group3")
    offsets, warnings, way = dumped(store.root, selection)
    assert way == "index"
    assert warnings == []
    assert offsets == [
        store.placed[n].physical_offset
        for n in (8, 13, 23, 28)
        if store.placed[n].topic == "Orders"
    ]


def test_dump_by_key_without_a_usable_index(store: SyntheticStore) -> None:
    selection = Selection(topics=frozenset({"Orders"}), key="group3")
    expected = dumped(store.root, selection)[0]
    index = sorted((store.root / "index").iterdir())
    data = index[0].read_bytes()
    for number in range(1, 20):
        flip_bit(index[0], 40 + 4 * store.slots + 20 * number + 19, 5)
    offsets, warnings, way = dumped(store.root, selection)
    assert (offsets, way) == (expected, "walk")
    index[0].write_bytes(data)
    for path in index:
        path.unlink()
    assert dumped(store.root, selection) == (expected, [], "walk")
    assert len(warnings) <= 1


def test_dump_over_damage(store: SyntheticStore) -> None:
    bad = store.placed[4]
    flip_bit(store.root / "commitlog" / f"{0:020d}", bad.physical_offset + 90, 0)
    offsets, warnings, _ = dumped(store.root, Selection())
    assert offsets == [p.physical_offset for p in store.placed if p != bad]
    assert len(warnings) == 1
    assert f"bad record at {bad.physical_offset}" in warnings[0]
    selection = Selection(
        topics=frozenset({bad.topic}),
        queue_id=bad.queue_id,
        from_queue_offset=bad.queue_offset,
        to_queue_offset=bad.queue_offset,
    )
    offsets, warnings, way = dumped(store.root, selection)
    assert (offsets, way) == ([], "consumequeue")
    assert "no valid record" in warnings[0]


def test_dumped_fields(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store")
    body = zlib.compress(b"text" * 20)
    store.put(body=body, tags="T", keys="a b", unique_key="ID", sys_flag=flags.COMPRESSED)
    store.put(body="grüße".encode())
    with StoreView(ReadOnlyFiles(), store.write()) as view:
        first, second = (to_dumped(m) for m in Dump(view, Selection(), pytest.fail).messages())
    assert (first.body_encoding, second.body_encoding) == ("base64", "utf-8")
    assert second.body == "grüße"
    assert (first.tags, first.keys, first.msg_id) == ("T", ["a", "b"], "ID")
    assert (first.born_host, first.store_host) == ("127.0.0.1:10911", "127.0.0.1:10911")
    assert first.offset_msg_id == "7F00000100002A9F0000000000000000"
    assert first.sys_flag == flags.COMPRESSED
    assert first.store_timestamp - first.born_timestamp == 5
