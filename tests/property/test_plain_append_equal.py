"""The quick way of ordinary messages and the reference path: same answers, same files.

Two stores get the same bursts under the same clock, one of them with the quick way switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from roquet.format.commit_log import DispatchRequest
from roquet.model.java_string import index_key_hash, java_hash, tags_code
from roquet.model.message import BrokerMessage
from roquet.model.properties import decode_properties, encode_properties
from roquet.runtime.clock import ManualClock
from roquet.store.commit_log import Appended
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.index import tag_key
from roquet.store.plain_append import TopicNote
from roquet.store.results import PutMessageResult
from tests.property.store_bursts import (
    BURSTS,
    CONFIG,
    PROPERTIES,
    Bursts,
    Way,
    closing,
    contents,
    open_store,
    put_bursts,
    submit_bursts,
)

Put = Callable[[Path, Bursts, MessageStoreConfig, Way], list[object]]

KINDS = {
    "async": CONFIG,
    "sync": structs.replace(CONFIG, flush_disk_type=FlushDiskType.SYNC_FLUSH),
    "no index": structs.replace(CONFIG, message_index=False),
    "pool": structs.replace(CONFIG, transient_store_pool=True, transient_store_pool_size=64),
}


@pytest.mark.parametrize("put", [put_bursts, submit_bursts])
@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_same_bursts_give_same_answers_and_files(put: Put, kind: str, bursts: Bursts) -> None:
    with TemporaryDirectory() as base:
        plain, reference = Path(base, "plain"), Path(base, "reference")
        assert put(plain, bursts, KINDS[kind], Way.PLAIN) == put(
            reference, bursts, KINDS[kind], Way.REFERENCE
        )
        assert contents(plain) == contents(reference)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_a_dispatcher_sees_every_record(bursts: Bursts) -> None:
    seen: dict[Way, list[DispatchRequest]] = {Way.PLAIN: [], Way.REFERENCE: []}
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
        assert seen[Way.PLAIN] == seen[Way.REFERENCE]
        assert contents(Path(base, "plain")) == contents(Path(base, "reference"))


def test_ordinary_messages_do_not_take_the_reference_path(tmp_path: Path) -> None:
    taken: list[str] = []
    store = open_store(tmp_path, MessageStoreConfig(), Way.PLAIN, ManualClock())
    original = store.commit_log.append

    def append(message: BrokerMessage, queue: ConsumeQueue) -> Appended | PutMessageResult:
        taken.append("reference")
        return original(message, queue)

    properties = encode_properties({"TAGS": "é", "KEYS": "a b", "UNIQ_KEY": "7F" * 16})
    message = BrokerMessage("T", 0, b"body", properties)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.commit_log, "append", append)
        for _ in range(3):
            store.put_message(message)
    store.shutdown()
    assert taken == ["reference"]  # the first makes the segment, the queue and the index file


@settings(max_examples=300, deadline=None)
@given(
    topic=st.text(min_size=1, max_size=20),
    properties=st.one_of(
        PROPERTIES,
        st.lists(
            st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "B"]), st.text(max_size=80))
        ).map(
            lambda pairs: "".join(f"{n}\x01{v}\x02" for n, v in pairs).encode("utf-8", "replace")
        ),
    ),
)
def test_what_is_derived_is_what_the_reference_derives(topic: str, properties: bytes) -> None:
    topic = topic.encode("utf-8", "replace").decode()
    derived = TopicNote(topic, topic.encode()).derive(properties)
    found = decode_properties(properties)
    if derived is None:
        assert b"\x01\x02" in properties + b"\x02"
        return
    keys = [found["UNIQ_KEY"]] if "UNIQ_KEY" in found else []
    keys += [key for key in found.get("KEYS", "").split(" ") if key]
    keys += [tag_key(found["TAGS"])] if "TAGS" in found else []
    assert derived == (
        tags_code(found.get("TAGS", "")),
        [index_key_hash(topic, key) for key in keys],
    )


@pytest.mark.parametrize("key", ["polygenelubricants", "x" * 200])
def test_hashes_at_the_edges_of_the_range(key: str) -> None:
    """One whose hash is the smallest number, which has no absolute value, and a long one."""
    note = TopicNote("T", b"T")
    note.hash_ = 0
    expected = java_hash(key)
    if key == "polygenelubricants":
        assert expected == -(1 << 31)
        assert note.hash_of(key.encode()) == 0
    else:
        assert TopicNote("T", b"T").hash_of(key.encode()) == index_key_hash("T", key)
