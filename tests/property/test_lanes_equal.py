"""The compiled lane and the reference path: same messages in, same answers and files out.

Two stores get the same bursts under the same clock, one with the lane and one without. Messages
are drawn so that plain and unusual ones meet: transactions, delays, IPv6, non-ASCII keys, CRC
properties, too long bodies, ends of segments, queue files and index files.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.format.commit_log import DispatchRequest, RecordRules, check_record
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.model.message import BrokerMessage
from roquet.runtime.clock import ManualClock
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.recovery import walk_log

_fast = pytest.importorskip("roquet._fast", reason="the compiled lane is not built")


@pytest.fixture(autouse=True, scope="module")
def lane_on() -> Iterator[None]:
    """Let the lane be used, also where the suite runs with it switched off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQUET_PURE", "0")
        yield


CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 12,
    consume_queue_file_bytes=200,
    index_slots=7,
    index_entries=23,
    max_message_bytes=200,
)

HOSTS = st.sampled_from(
    [
        Host(b"\x7f\0\0\1", 10911),
        Host(b"\x0a\0\0\2", 65535),
        Host(bytes(15) + b"\1", 80),
        Host(b"\x7f\0\0\1", 2**31),
    ]
)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "A", "", "__CRC32#", "TAG"])
VALUES = st.sampled_from(["", "a", "k1 k2", "  x ", "tag", "3", "é", "😀", "1234567890", "a\x01b"])
PROPERTIES = st.one_of(
    st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
        lambda pairs: "".join(f"{n}\x01{v}\x02" for n, v in pairs).encode()
    ),
    st.binary(max_size=40),
)
TOPICS = st.sampled_from(
    ["T", "Topic-2", "SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 130, "Thème", "bad/name", "x" * 127]
)
MESSAGES = st.builds(
    BrokerMessage,
    topic=TOPICS,
    queue_id=st.integers(-1, 2),
    body=st.one_of(st.binary(max_size=100), st.just(b"x" * 201), st.just(b"y" * 200)),
    properties=PROPERTIES,
    flag=st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, 2**70]),
    sys_flag=st.sampled_from([0, 0, 0, 1, 2, 4, 8, 0xC, 0x10, 0x20, 0x80, 0x301]),
    born_timestamp_ms=st.integers(0, 2**42),
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=st.sampled_from([0, 1, 3, 2**31]),
    prepared_transaction_offset=st.sampled_from([0, 7, 2**40]),
)
BURSTS = st.lists(
    st.tuples(st.lists(MESSAGES, max_size=12), st.integers(-50, 2000)), min_size=1, max_size=8
)


def contents(root: Path) -> dict[str, bytes]:
    """All files of a store by name; index files by their order, not by their time."""
    found: dict[str, bytes] = {}
    for number, path in enumerate(sorted(root.rglob("*"))):
        if path.is_file() and path.name not in {"abort", "lock"}:
            name = f"index-{number}" if path.parent.name == "index" else path.relative_to(root)
            found[str(name)] = path.read_bytes()
    return found


def run(
    root: Path,
    bursts: list[tuple[list[BrokerMessage], int]],
    config: MessageStoreConfig,
    *,
    use_lane: bool,
) -> list[object]:
    """Put all bursts; the answers."""
    clock = ManualClock(1_700_000_000_000)
    store = DefaultMessageStore(root, config, clock=clock)
    if use_lane:
        assert store.lane is not None
    else:
        store.lane = store.dispatcher.lane = None
    store.load()
    store.start()
    answers: list[object] = []
    for messages, millis in bursts:
        result = store.put_burst(messages)
        answers.append((list(result.queue_offsets), list(result.physical_offsets)))
        answers.append({k: (v.status, v.detail) for k, v in result.refused.items()})
        clock.advance(millis)
    store.shutdown()
    answers.append((store.dispatcher.store_timestamp_ms, store.commit_log.store_timestamp_ms))
    return answers


@pytest.mark.parametrize("flush", list(FlushDiskType))
@settings(max_examples=60, deadline=None)
@given(bursts=BURSTS)
def test_same_bursts_give_same_answers_and_files(
    flush: FlushDiskType, bursts: list[tuple[list[BrokerMessage], int]]
) -> None:
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
        assert run(fast, bursts, config, use_lane=True) == run(
            plain, bursts, config, use_lane=False
        )
        assert contents(fast) == contents(plain)


@settings(max_examples=40, deadline=None)
@given(bursts=BURSTS)
def test_recovery_gives_the_same_files_with_and_without_the_lane(
    bursts: list[tuple[list[BrokerMessage], int]],
) -> None:
    with TemporaryDirectory() as base:
        roots = [Path(base, "fast"), Path(base, "plain")]
        for root in roots:
            run(root, bursts, CONFIG, use_lane=False)
            (root / "abort").write_bytes(b"1")
            (root / "checkpoint").unlink(missing_ok=True)
            store = DefaultMessageStore(root, CONFIG, clock=ManualClock(1_700_000_100_000))
            if root is roots[1]:
                store.lane = store.dispatcher.lane = None
            store.load()
            store.start()
            store.shutdown()
        assert contents(roots[0]) == contents(roots[1])


@settings(max_examples=60, deadline=None)
@given(
    bursts=BURSTS,
    flips=st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(0, 7)), max_size=3),
)
def test_the_compiled_walk_ends_where_the_reference_does(
    bursts: list[tuple[list[BrokerMessage], int]], flips: list[tuple[int, int]]
) -> None:
    with TemporaryDirectory() as base:
        root = Path(base, "store")
        run(root, bursts, CONFIG, use_lane=False)
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
