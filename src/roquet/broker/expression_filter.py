"""Applies a group's filter expression to its pulls.

Upstream's ExpressionMessageFilter, ExpressionForRetryMessageFilter and
CommitLogDispatcherCalcBitMap. A message is matched twice at most: by the bit map of its queue
entry, which was computed when it was stored and may have false positives, and by its properties.

Invariants:

* A bit map that is missing, of another length, or older than the filter matches everything.
* A message for which an expression has no value does not match, as in upstream.
* The number of messages that one read matches is bounded by the length of the expression, since
  this runs on the event loop.
"""

from __future__ import annotations

import logging
from functools import partial

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_filter import ConsumerFilterManager
from roquet.filter.bloom import BitsArray
from roquet.filter.consumer_filters import ConsumerFilter, filter_bitmap
from roquet.filter.sql92 import Sql92Expression
from roquet.format.commit_log import DispatchRequest, record_properties
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.model import properties as prop
from roquet.model.topic import RETRY_GROUP_TOPIC_PREFIX
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.reader import MessageFilter, QueueFilter

__all__ = [
    "bitmap_filter",
    "dispatch_bitmap",
    "expression_filter",
    "make_filters",
    "retry_filter",
]

log = logging.getLogger(__name__)

ENTRIES_MAX = 256
CHARACTERS_MAX = 128 << 10
"""Limit on the length of an expression times the messages that one read matches."""

RECORD_BYTES = 512
"""The same for longer messages: parsing their properties, which may be long, takes more time."""


def make_filters(
    config: BrokerConfig,
    files: Files,
    clock: Clock,
    *,
    store: DefaultMessageStore,
    consumers: ConsumerManager,
) -> ConsumerFilterManager:
    """Create a broker's filters, fed by its consumers and, if enabled, used by its store."""
    filters = ConsumerFilterManager.at(
        config, files, clock, latest_store_time_ms=lambda: store.commit_log.store_timestamp_ms
    )
    consumers.registered.append(filters.register)
    consumers.group_gone.append(filters.unregister)
    if config.calculate_filter_bitmap:
        if store.config.consume_queue_ext:
            store.dispatcher.bitmap = partial(dispatch_bitmap, filters)
        else:
            log.warning("enableCalcFilterBitMap has no effect without enableConsumeQueueExt")
    return filters


def bitmap_filter(found: ConsumerFilter, filters: ConsumerFilterManager) -> QueueFilter:
    """Match a group's filter against the bit map of a queue entry, with false positives."""
    bits, bloom = found.data.bloom_filter_data, filters.bloom
    judged_from_ms = found.judged_from_ms

    def is_wanted(_tags_code: int, ext: CqExtUnit | None) -> bool:
        if ext is None or ext.store_timestamp_ms <= judged_from_ms or bits is None:
            return True
        bitmap = BitsArray(ext.filter_bitmap)
        return bitmap.bit_length != bloom.bit_count or bloom.is_hit(bits, bitmap)

    return is_wanted


def expression_filter(
    expression: Sql92Expression, by_queue: QueueFilter | None = None
) -> MessageFilter:
    """Match messages for which an expression is true."""
    matches = expression.matches

    def is_wanted(record: memoryview) -> bool:
        return matches(record_properties(record))

    return MessageFilter(by_queue, is_wanted, *_limits(expression))


def retry_filter(
    topic: str, expression: Sql92Expression, filters: ConsumerFilterManager
) -> MessageFilter:
    """Match messages of a retry topic for which the expression of their own topic is true.

    If the group does not filter their own topic, all match.
    """
    group = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)

    def is_wanted(record: memoryview) -> bool:
        properties = record_properties(record)
        found = filters.find(properties.get(prop.RETRY_TOPIC, ""), group)
        return found is None or found.expression.matches(properties)

    return MessageFilter(None, is_wanted, *_limits(expression))


def _limits(expression: Sql92Expression) -> tuple[int, int]:
    """How many entries, and how many bytes of records, one read matches."""
    messages = CHARACTERS_MAX // max(1, len(expression.text))
    return max(1, min(ENTRIES_MAX, messages)), max(1, messages * RECORD_BYTES)


def dispatch_bitmap(filters: ConsumerFilterManager, request: DispatchRequest) -> bytes | None:
    """Return the bit map of a message that is being dispatched."""
    judges = filters.of_topic(request.topic)
    try:
        return filter_bitmap(judges, filters.bloom.bit_count, request.properties)
    except Exception:
        # Without a bit map the message is matched when it is pulled; dispatch continues.
        log.exception("no bit map for the message at %d", request.physical_offset)
        return None
