"""The compiled append and the reference: same messages in, same results and files out.

Two stores get the same bursts under the same clock, one compiled and one not.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from roquet.format.commit_log import DispatchRequest, RecordRules, check_record
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.model.message import BrokerMessage
from roquet.runtime.clock import ManualClock
from roquet.store.config import FlushDiskType
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.log_walk import walk_log
from tests.campaign import examples
from tests.property.store_bursts import (
    BURSTS,
    CONFIG,
    Bursts,
    Way,
    closing,
    contents,
    make_store,
    open_store,
    put_bursts,
    submit_bursts,
)

_record = pytest.importorskip("roquet.format._record", reason="the hot path is not built")

pytestmark = pytest.mark.usefixtures("compiled_on")


KINDS = {
    "async": CONFIG,
    "sync": structs.replace(CONFIG, flush_disk_type=FlushDiskType.SYNC_FLUSH),
    "no index": structs.replace(CONFIG, message_index=False),
    "pool": structs.replace(CONFIG, transient_store_pool=True, transient_store_pool_size=64),
}


@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_same_bursts_give_same_results_and_files(kind: str, bursts: Bursts) -> None:
    config = KINDS[kind]
    with TemporaryDirectory() as base:
        fast, plain = Path(base, "fast"), Path(base, "plain")
        assert put_bursts(fast, bursts, config, Way.COMPILED) == put_bursts(
            plain, bursts, config, Way.REFERENCE
        )
        assert contents(fast) == contents(plain)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_a_dispatcher_sees_every_record(bursts: Bursts) -> None:
    seen: dict[Way, list[DispatchRequest]] = {way: [] for way in Way}
    with TemporaryDirectory() as base:
        for way, requests in seen.items():
            clock = ManualClock(1_700_000_000_000)
            store = open_store(Path(base, way.value), CONFIG, way, clock)
            with closing(store):
                for number, (messages, millis) in enumerate(bursts):
                    if number == 1:
                        store.dispatcher.dispatchers.append(requests.append)
                    for message in messages:
                        store.submit(message)
                    store.finish_burst()
                    clock.advance(millis)
        assert seen[Way.COMPILED] == seen[Way.REFERENCE]
        assert contents(Path(base, "compiled")) == contents(Path(base, "reference"))


def test_an_inner_batch_for_a_simple_queue_is_refused_in_a_burst(tmp_path: Path) -> None:
    host = Host(b"\x7f\0\0\1", 10911)
    bursts: Bursts = [
        (
            [
                BrokerMessage("T", 0, b"x", sys_flag=flag, born_host=host, store_host=host)
                for flag in (0, 0, flags.INNER_BATCH)
            ],
            0,
        )
    ]
    quick = put_bursts(tmp_path / "quick", bursts, CONFIG, Way.COMPILED)
    assert quick[0] == ([0, 1, -1], [0, 92 + 1, -1])
    assert quick == put_bursts(tmp_path / "reference", bursts, CONFIG, Way.REFERENCE)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_messages_one_by_one_give_same_results_and_files(bursts: Bursts) -> None:
    with TemporaryDirectory() as base:
        fast, plain = Path(base, "fast"), Path(base, "plain")
        assert submit_bursts(fast, bursts, CONFIG, Way.COMPILED) == submit_bursts(
            plain, bursts, CONFIG, Way.REFERENCE
        )
        assert contents(fast) == contents(plain)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_recovery_gives_the_same_files_with_and_without_compiled_code(
    bursts: Bursts,
) -> None:
    with TemporaryDirectory() as base:
        roots = [Path(base, "fast"), Path(base, "plain")]
        for root in roots:
            put_bursts(root, bursts, CONFIG, Way.REFERENCE)
            (root / "abort").write_bytes(b"1")
            (root / "checkpoint").unlink(missing_ok=True)
            way = Way.COMPILED if root is roots[0] else Way.REFERENCE
            store = make_store(root, CONFIG, way, ManualClock(1_700_000_100_000))
            store.load()
            store.start()
            store.shutdown()
        assert contents(roots[0]) == contents(roots[1])


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
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


@settings(max_examples=examples(300), deadline=None)
@given(data=st.binary(max_size=3000))
def test_crc_is_zlibs(data: bytes) -> None:
    assert _record.crc32(data) == zlib.crc32(data)


def test_crc_is_zlibs_for_every_length() -> None:
    """Steps of 256, 64 and 16 bytes, in every combination, and what they leave."""
    data = bytes(number * 97 % 251 for number in range(1_200))
    for size in range(len(data)):
        assert _record.crc32(data[:size]) == zlib.crc32(data[:size])


@settings(max_examples=examples(300), deadline=None)
@given(data=st.binary(max_size=400))
def test_walk_never_passes_what_the_reference_refuses(data: bytes) -> None:
    data = len(data).to_bytes(4, "big") + b"\xda\xa3\x20\xa7" + data[8:]
    position, count, _, _ = _record.walk(data, 0, len(data), 0, check_crc=True)
    at = 0
    for _ in range(count):
        found = check_record(
            data, at, len(data), physical_offset=at, rules=RecordRules(DelayLevels())
        )
        assert isinstance(found, DispatchRequest)
        at += found.size_bytes
    assert at == position


def test_a_walk_stays_inside_its_buffer() -> None:
    assert _record.walk(bytes(200), 0, 1 << 40, 0, check_crc=False)[:2] == (0, 0)
    with pytest.raises(ValueError, match="before the segment"):
        _record.walk(bytes(200), -1, 200, 0, check_crc=False)
