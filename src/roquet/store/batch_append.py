"""Appends to batch consume queues.

Owns what an inner batch needs beyond a regular append: the number of its messages is checked
before anything is written, INNER_BASE is the queue offset of the first one, and the next queue
offset advances by that number. Any other record in such a queue counts as one message.
"""

from __future__ import annotations

from msgspec.structs import replace

from roquet.format.batch_consume_queue import BATCH_SIZE_MAX, inner_number
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.commit_log import Appended, CommitLog
from roquet.store.results import PutMessageResult, PutMessageStatus

__all__ = ["append_to_batch_queue"]

_WRAPPED = flags.INNER_BATCH | flags.NEED_UNWRAP


def append_to_batch_queue(
    commit_log: CommitLog, message: BrokerMessage | BatchMessage, queue: BatchConsumeQueue
) -> Appended | PutMessageResult:
    """Append a message, an inner batch or the messages of a batch, or return why not."""
    if isinstance(message, BatchMessage):
        # Each message gets a record of its own, which is not a batch, whatever the producer said.
        return commit_log.append_batch(
            message._replace(sys_flag=message.sys_flag & ~_WRAPPED), queue
        )
    if not message.sys_flag & flags.INNER_BATCH:
        return commit_log.append(message, queue)
    properties = prop.decode_properties(message.properties)
    text = properties.get(prop.INNER_NUM)
    count = inner_number(text) if text else 1
    if count is None:
        return PutMessageResult(
            PutMessageStatus.MESSAGE_ILLEGAL,
            detail=f"{prop.INNER_NUM} {text!r} is not a number from 1 to {BATCH_SIZE_MAX}",
        )
    properties[prop.INNER_BASE] = str(queue.next_queue_offset)
    based = message._replace(properties=prop.encode_properties(properties))
    appended = commit_log.append(based, queue)
    if isinstance(appended, PutMessageResult):
        return appended
    if flags.takes_queue_offset(message.sys_flag):
        queue.next_queue_offset += count - 1
    return Appended(replace(appended.result, inner_messages=count), appended.requests)
