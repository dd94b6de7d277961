"""The compiled lane and the reference path: same messages in, same answers and files out.

Two stores get the same bursts under the same clock, one with the lane and one without.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roquet.format.commit_log import DispatchRequest, RecordRules, check_record
from roquet.model.delay_level import DelayLevels
from roquet.runtime.clock import ManualClock
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.recovery import walk_log
from tests.property.store_bursts import (
    BURSTS,
    CONFIG,
    Bursts,
    Way,
    contents,
    put_bursts,
    submit_bursts,
)

_fast = pytest.importorskip("roquet._fast", reason="the compiled lane is not built")


@pytest.fixture(autouse=True, scope="module")
def lane_on() -> Iterator[None]:
    """Let the lane be used, also where the suite runs with it switched off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQUET_PURE", "0")
        yield


@pytest.mark.parametrize("flush", list(FlushDiskType))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_same_bursts_give_same_answers_and_files(flush: FlushDiskType, bursts: Bursts) -> None:
    config = MessageStoreConfig(
        commit_log_file_bytes=CONFIG.commit_log_file_bytes,
        consume_queue_file_bytes=CONFIG.consume_queue_file_bytes,
        index_slots=CONFIG.index_slots,
        index_entries=CONFIG.index_entries,
        max_message_bytes=CONFIG.max_message_bytes,
        flush_disk_type=flush,
    )
    with TemporaryDirectory() as base:
        fast, plain = Path(base, "fast"), Path(base, "plain")
        assert put_bursts(fast, bursts, config, Way.LANE) == put_bursts(
            plain, bursts, config, Way.REFERENCE
        )
        assert contents(fast) == contents(plain)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_messages_one_by_one_give_same_answers_and_files(bursts: Bursts) -> None:
    with TemporaryDirectory() as base:
        fast, plain = Path(base, "fast"), Path(base, "plain")
        assert submit_bursts(fast, bursts, CONFIG, Way.LANE) == submit_bursts(
            plain, bursts, CONFIG, Way.REFERENCE
        )
        assert contents(fast) == contents(plain)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_recovery_gives_the_same_files_with_and_without_the_lane(
    bursts: Bursts,
) -> None:
    with TemporaryDirectory() as base:
        roots = [Path(base, "fast"), Path(base, "plain")]
        for root in roots:
            put_bursts(root, bursts, CONFIG, Way.REFERENCE)
            (root / "abort").write_bytes(b"1")
            (root / "checkpoint").unlink(missing_ok=True)
            store = DefaultMessageStore(root, CONFIG, clock=ManualClock(1_700_000_100_000))
            if root is roots[1]:
                store.lane = store.dispatcher.lane = None
            store.load()
            store.start()
            store.shutdown()
        assert contents(roots[0]) == contents(roots[1])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    bursts=BURSTS,
    flips=st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 7)), max_size=3),
)
def test_the_compiled_walk_ends_where_the_reference_does(
    bursts: Bursts, flips: list[tuple[int, int]]
) -> None:
    with TemporaryDirectory() as base:
        root = Path(base, "store")
        put_bursts(root, bursts, CONFIG, Way.REFERENCE)
        store = DefaultMessageStore(root, CONFIG, clock=ManualClock(1_700_000_100_000))
        store.commit_log.load()
        for segment in store.commit_log.queue.segments[:1]:
            for position, bit in flips:
                segment.mapping[position % segment.size_bytes] ^= 1 << bit
        with pytest.MonkeyPatch.context() as patch:
            fast = walk_log(store.commit_log, 0)
            patch.setenv("ROQUET_PURE", "1")
            assert walk_log(store.commit_log, 0) == fast
        store.commit_log.close()


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=3000))
def test_crc_is_zlibs(data: bytes) -> None:
    assert _fast.crc32(data) == zlib.crc32(data)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=400))
def test_walk_never_passes_what_the_reference_refuses(data: bytes) -> None:
    data = len(data).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + data[8:]
    position, count, _, _ = _fast.walk(data, 0, len(data), 0, check_crc=True)
    at = 0
    for _ in range(count):
        found = check_record(
            data, at, len(data), physical_offset=at, rules=RecordRules(DelayLevels())
        )
        assert isinstance(found, DispatchRequest)
        at += found.size_bytes
    assert at == position
