"""The door between the store and its compiled lane.

Owns the choice whether ``roquet._fast`` is used and the Python side of a burst. The lane takes
plain messages and records; whatever it leaves goes through the reference path, so results and
files are the same with and without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from roquet.model.message import BrokerMessage
from roquet.runtime import compiled
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService
from roquet.store.results import AppendResult, PutMessageResult

_IS_BUILT = find_spec("roquet._fast") is not None
if _IS_BUILT:
    from roquet import _fast

Walk = Callable[[memoryview, int, int, int, bool], tuple[int, int, int, int]]
FitsEntry = Callable[[memoryview | bytes, int, bytes, int, int, int], bool]


@dataclass(slots=True)
class BurstResult:
    """Answer to a burst: offsets by message, -1 for one that was refused."""

    queue_offsets: array[int]
    physical_offsets: array[int]
    end_offset: int = 0
    refused: dict[int, PutMessageResult] = field(default_factory=dict)


def compiled_walk() -> Walk | None:
    """The lane's walk over plain records, where it is built."""
    return _fast.walk if _IS_BUILT and compiled.is_wanted() else None


def compiled_fits_entry() -> FitsEntry | None:
    """The lane's check of a record against its queue entry, where it is built."""
    return _fast.fits_entry if _IS_BUILT and compiled.is_wanted() else None


def make_lane(
    config: MessageStoreConfig,
    commit_log: CommitLog,
    queues: ConsumeQueueStore,
    index: IndexService | None,
    dispatcher: Dispatcher,
) -> _fast.Lane | None:
    """The compiled lane of a store, ``None`` where it is not built or cannot help."""
    if not _IS_BUILT or not compiled.is_wanted():
        return None
    if config.append_property_crc or config.consume_queue_ext:
        return None
    if queues.uses_plain_files:
        queues.write_plain = _fast.write_pending
    return _fast.Lane(
        commit_log, queues, index, dispatcher, max_body_bytes=config.max_message_bytes
    )


def append_alone(
    message: BrokerMessage,
    lane: _fast.Lane,
    *,
    commit_log: CommitLog,
    dispatcher: Dispatcher,
    is_confirmed: bool,
) -> AppendResult | None:
    """Append one message by the lane; ``None`` leaves it to the reference path.

    ``is_confirmed`` is that of :func:`append_burst`.
    """
    began_offset = commit_log.wrote_offset
    now_ms = commit_log.next_store_timestamp()
    queue_offset, physical_offset = array("q", (-1,)), array("q", (-1,))
    dispatch = is_confirmed and dispatcher.is_plain and dispatcher.dispatched_offset == began_offset
    try:
        count = lane.append([message], 0, now_ms, dispatch, queue_offset, physical_offset)
    except OSError:
        return None  # no file for the index: the reference path tells everybody
    if not count:
        return None
    return AppendResult(
        physical_offset[0],
        commit_log.wrote_offset - began_offset,
        now_ms,
        queue_offset[0],
        (physical_offset[0],),
    )


def append_burst(
    messages: Sequence[BrokerMessage],
    *,
    lane: _fast.Lane | None,
    commit_log: CommitLog,
    dispatcher: Dispatcher,
    is_confirmed: bool,
    append_one: Callable[[BrokerMessage], PutMessageResult],
) -> BurstResult:
    """Append messages in order, plain ones by the lane, the others one by one.

    ``is_confirmed`` says that an append counts as confirmed at once, so that the lane may
    dispatch what it appends.
    """
    listed = list(messages)
    count = len(listed)
    result = BurstResult(array("q", [-1]) * count, array("q", [-1]) * count)
    number = 0
    while number < count:
        if lane is not None:
            dispatch = (
                is_confirmed
                and dispatcher.is_plain
                and dispatcher.dispatched_offset == commit_log.wrote_offset
            )
            number = lane.append(
                listed,
                number,
                commit_log.next_store_timestamp(),
                dispatch,
                result.queue_offsets,
                result.physical_offsets,
            )
            if number == count:
                break
        answer = append_one(listed[number])
        if answer.append is None:
            result.refused[number] = answer
        else:
            result.queue_offsets[number] = answer.append.queue_offset
            result.physical_offsets[number] = answer.append.wrote_offset
        number += 1
    result.end_offset = commit_log.wrote_offset
    return result
