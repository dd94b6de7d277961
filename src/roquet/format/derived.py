"""Which ConsumeQueue entries and index keys a record of the log gets.

Owns the rules by which both are derived from the log: the light queues that hold a record besides
its own queue, and the hashes under which it is indexed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roquet.format.commit_log import DispatchRequest
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.java_string import index_key_hash
from roquet.model.topic import LMQ_PREFIX

MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
MULTI_SEPARATOR = ","


class QueueKey(NamedTuple):
    """Identifies a queue."""

    topic: str
    queue_id: int


def light_places(record: DispatchRequest) -> Iterator[tuple[QueueKey, int]]:
    """Light queues that hold a record besides its own queue; it carries its offsets in them."""
    names = record.properties.get(MULTI_DISPATCH)
    if names is None:
        return
    offsets = record.properties.get(MULTI_QUEUE_OFFSET, "").split(MULTI_SEPARATOR)
    for name, text in zip(names.split(MULTI_SEPARATOR), offsets, strict=False):
        if name.startswith(LMQ_PREFIX) and text.isascii() and text.isdecimal():
            yield QueueKey(name, 0), int(text)


def tag_key(tags: str) -> str:
    """The key that stands for the TAGS of a record (upstream's index type ``T``)."""
    return f"T#{tags}"


def key_hashes(request: DispatchRequest) -> list[int]:
    """Hashes under which every broker indexes a record: its unique id, then each of its keys."""
    if flags.transaction_type(request.sys_flag) == flags.TRANSACTION_ROLLBACK:
        return []
    keys = [request.unique_key] if request.unique_key is not None else []
    keys += [key for key in request.keys.split(prop.KEY_SEPARATOR) if key]
    return [index_key_hash(request.topic, key) for key in keys]


def tag_hash(request: DispatchRequest) -> int | None:
    """Hash of a record's tags, under which RocketMQ 5.4 indexes it too; earlier releases do not."""
    tags = request.properties.get(prop.TAGS)
    if not tags or flags.transaction_type(request.sys_flag) == flags.TRANSACTION_ROLLBACK:
        return None
    return index_key_hash(request.topic, tag_key(tags))
