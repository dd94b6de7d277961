"""Removes obsolete entries from the queue mappings of static topics.

Upstream's TopicQueueMappingCleanService. It does two things, both only in the hours of
``deleteWhen``:

* The leader of a logical queue drops the first item once its messages are gone from the broker that
  had them.
* A broker that led a queue before the last leader drops the queue: its messages are still found
  through the leader's items, and clients turn to the leader.

Owns no state. If a broker is unreachable, the next round tries again.
"""

from __future__ import annotations

import logging

from roquet.broker.components import BrokerComponents
from roquet.errors import RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.model.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    leaders_of,
)
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.topic import TopicConfigAndQueueMapping, TopicStatsTable
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.admin import TopicRequestHeader

__all__ = ["CLEAN_INTERVAL_MS", "TopicQueueMappingCleanService"]

log = logging.getLogger(__name__)

CLEAN_INTERVAL_MS = 5 * 60_000


class TopicQueueMappingCleanService:
    """Cleans mappings.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._config = components.store.config
        self._mappings = components.mappings
        self._rpc = components.rpc
        self._clock = components.clock

    async def run_once(self) -> None:
        """Run one round, if it is time for one."""
        hours = {int(hour) for hour in self._config.delete_when.split(";")}
        if self._clock.local_hour() in hours:
            await self.clean_expired_items()
            await self.clean_former_leaders()

    async def clean_expired_items(self) -> None:
        """Drop first items whose messages are gone."""
        for topic, detail in list(self._mappings.table.items()):
            led = {
                queue_id: items
                for queue_id, items in detail.hosted_queues.items()
                if len(items) > 1 and detail.is_leader(queue_id)
            }
            stats: dict[str, TopicStatsTable] = {}
            for broker in {items[0].broker_name or "" for items in led.values()}:
                found = await self._stats(topic, broker)
                if found is not None:
                    stats[broker] = found
            expired = {
                queue_id: items[1:]
                for queue_id, items in led.items()
                if _is_empty(topic, items[0], stats)
            }
            await self._replace(detail, expired)

    async def clean_former_leaders(self) -> None:
        """Drop queues that two other brokers have led since."""
        for topic, detail in list(self._mappings.table.items()):
            lost = {
                queue_id: items[-1].broker_name
                for queue_id, items in detail.hosted_queues.items()
                if items and not detail.is_leader(queue_id)
            }
            if not lost:
                continue
            try:
                route = await self._rpc.route(topic)
            except RoquetError as error:
                log.warning("route of static topic %s: %s", topic, error)
                continue
            leaders = leaders_of((route.topic_queue_mapping_by_broker or {}).values())
            current = {
                queue_id: leaders[queue_id].broker_name or ""
                for queue_id in lost
                if queue_id in leaders
            }
            details = {broker: await self._detail(topic, broker) for broker in {*current.values()}}
            dropped = {
                queue_id: None
                for queue_id, broker in current.items()
                if broker != lost[queue_id] and _leads(details[broker], queue_id, detail)
            }
            await self._replace(detail, dropped)

    async def _replace(
        self,
        seen: TopicQueueMappingDetail,
        queues: dict[int, list[LogicQueueMappingItem]] | dict[int, None],
    ) -> None:
        """Replace the queues of a mapping, unless it changed while other brokers were asked."""
        if queues and self._mappings.stage_queues(seen, queues):
            await self._mappings.committed()
            log.info("cleaned the mapping of %s: queues %s", seen.topic, sorted(queues))

    async def _stats(self, topic: str, broker: str) -> TopicStatsTable | None:
        header = TopicRequestHeader(topic=topic, broker_name=broker, logical=False)
        try:
            answer = await self._rpc.invoke(broker, RequestCode.GET_TOPIC_STATS_INFO, header)
            return decode_body(TopicStatsTable, answer.body)
        except RoquetError as error:
            log.warning("queues of static topic %s on %s: %s", topic, broker, error)
            return None

    async def _detail(self, topic: str, broker: str) -> TopicQueueMappingDetail | None:
        header = TopicRequestHeader(topic=topic, broker_name=broker, logical=True)
        try:
            answer = await self._rpc.invoke(broker, RequestCode.GET_TOPIC_CONFIG, header)
            return decode_body(TopicConfigAndQueueMapping, answer.body).mapping_detail
        except RoquetError as error:
            log.warning("mapping of static topic %s on %s: %s", topic, broker, error)
            return None


def _is_empty(topic: str, item: LogicQueueMappingItem, stats: dict[str, TopicStatsTable]) -> bool:
    """Whether a broker reported that it has no messages of an item."""
    table = stats.get(item.broker_name or "")
    if table is None:
        return False
    found = table.offset_table.get(MessageQueue(topic, item.broker_name or "", item.queue_id))
    return found is not None and (found.max_offset in {0, found.min_offset})


def _leads(
    detail: TopicQueueMappingDetail | None, queue_id: int, own: TopicQueueMappingDetail
) -> bool:
    """Whether a broker leads a queue, at the same epoch of the mapping as this broker's."""
    return (
        detail is not None
        and (detail.epoch, detail.total_queues) == (own.epoch, own.total_queues)
        and detail.is_leader(queue_id)
    )
