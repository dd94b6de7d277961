"""The single append: what the hot path may do, and what happens to messages it declines."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.model.message import BrokerMessage
from roquet.runtime import compiled
from roquet.store.append import Appender
from roquet.store.config import FlushDiskType
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageResult
from roquet.store.running_flags import RunningFlag
from tests.unit.store.kit import bodies, config, message, opened, put

SYNC = config(flush_disk_type=FlushDiskType.SYNC_FLUSH)


def append_between(
    store: DefaultMessageStore, body: bytes, done: Callable[[PutMessageResult], None] | None = None
) -> None:
    """What the hot path does, according to the reference."""
    puts = store.puts.begin_plain_puts()
    try:
        assert puts.is_allowed
        assert store.appender.append(message(body), is_confirmed=puts.dispatch).is_ok
    finally:
        store.puts.finish_plain_puts(puts, 1, done)


def is_free(store: DefaultMessageStore, *, wait_s: float = 10) -> bool:
    """Whether another thread gets the store's lock."""
    got = threading.Event()

    def take() -> None:
        with store.puts.reading():
            got.set()

    threading.Thread(target=take, daemon=True).start()
    return got.wait(wait_s)


def test_puts_of_the_hot_path_are_part_of_a_burst(tmp_path: Path) -> None:
    results: list[PutMessageResult] = []
    with opened(tmp_path / "store") as store:
        put(store, message(b"first"))
        append_between(store, b"second", results.append)
        assert results == [], "the burst is not finished"
        store.finish_burst()
        assert [result.is_ok for result in results] == [True]
        assert bodies(store) == [b"first", b"second"]
        assert store.stats.put_messages == 2


def test_with_sync_flush_the_result_waits_for_the_disk(tmp_path: Path) -> None:
    results: list[PutMessageResult] = []
    with opened(tmp_path / "store", config=SYNC) as store:
        puts = store.puts.begin_plain_puts()
        assert not puts.dispatch
        store.puts.finish_plain_puts(puts, 0)
        append_between(store, b"one", results.append)
        store.finish_burst()
        assert results == []
        store.flusher.flush_all()
        assert [result.is_ok for result in results] == [True]


@pytest.mark.parametrize("reason", ["flags", "hooks", "busy"])
def test_the_hot_path_is_off_when_each_put_has_to_be_checked(tmp_path: Path, reason: str) -> None:
    with opened(tmp_path / "store") as store:
        match reason:
            case "flags":
                store.flags.set(RunningFlag.DISK_FULL)
            case "hooks":
                store.put_hooks.append(lambda _message: None)
            case _:
                store.components.timing.began_ns = -(10**15)
        puts = store.puts.begin_plain_puts()
        store.puts.finish_plain_puts(puts, 0)
        assert (puts.is_allowed, puts.now_ms, puts.dispatch) == (False, -1, False)
        assert is_free(store)
        store.finish_burst()
        assert store.stats.put_messages == 0


def test_no_segment_is_removed_while_the_hot_path_reads(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        with store.puts.reading():
            assert not is_free(store, wait_s=0)
        assert is_free(store)


def test_an_error_of_compiled_code_leaves_the_message_to_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OneThenNoFile:
        """Appends the first of several messages, and has no file for the index of the next."""

        def __init__(self, appender: Appender) -> None:
            self._append = appender.append

        def append(
            self,
            messages: list[BrokerMessage],
            first: int,
            _now_ms: int,
            dispatch: bool,  # noqa: FBT001 - as the compiled one has it
            queue_offsets: array[int],
            physical_offsets: array[int],
        ) -> int:
            if first == 0 and len(messages) > 1:
                appended = self._append(messages[0], is_confirmed=dispatch).append
                assert appended is not None
                queue_offsets[0] = appended.queue_offset
                physical_offsets[0] = appended.wrote_offset
            raise OSError("no file for the index")

    with opened(tmp_path / "store") as store:
        monkeypatch.setattr(store.appender, "compiled", OneThenNoFile(store.appender))
        result = store.put_burst([message(b"one"), message(b"two"), message(b"three")])
        assert list(result.queue_offsets) == [0, 1, 2]
        assert bodies(store) == [b"one", b"two", b"three"]


@pytest.mark.skipif(
    not compiled.is_used("roquet.store._append"), reason="needs the compiled append"
)
@pytest.mark.parametrize(
    "wrong",
    ["text", ("T", 0, b"few fields"), (*message(b"")[:7], ("127.0.0.1",), *message(b"")[8:])],
)
def test_the_compiled_append_refuses_other_objects(tmp_path: Path, wrong: object) -> None:
    with opened(tmp_path / "store") as store:
        put(store, message(b"first"))
        append = store.appender.compiled
        assert append is not None
        with pytest.raises(TypeError, match="is not a tuple of"):
            append.append([wrong], 0, 1, True, array("q", [0]), array("q", [0]))  # type: ignore[list-item]
        put(store, message(b"second"))
        assert bodies(store) == [b"first", b"second"]
