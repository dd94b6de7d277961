"""Feeds the counters with the events of the broker's services.

Owns which event counts as what, as in upstream: the counters for messages that are sent back,
committed or delayed, and for connections.
"""

from __future__ import annotations

from roquet.broker.message_services import MessageServices
from roquet.broker.processor.send_back import SentBackMessage
from roquet.broker.service.transaction_check import TRANSACTION_GROUP
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.broker.stats.commercial import NOBODY, OWNER_FIELD
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from roquet.remoting.endpoint import RemotingStatistics
from roquet.runtime.clock import Clock
from roquet.store.results import GetMessageResult

__all__ = ["SCHEDULE_GROUP", "ChannelActivity", "ServiceFeed"]

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
"""The name under which deliveries of delayed messages are counted."""

_QUEUE_ID = 0


class ServiceFeed:
    """Counts delayed, sent back and transactional messages.

    Args:
        stats: The counters.
        services: The services to listen to.
        clock: The time.
    """

    def __init__(self, stats: BrokerStats, services: MessageServices, clock: Clock) -> None:
        self._stats = stats
        self._clock = clock
        services.send_back.listeners.append(self._sent_back)
        services.end_transaction.committed.append(self._committed)
        services.schedule.listeners.append(self._delivered)
        services.checks.read_listeners.append(self._read)
        services.checks.renewed_listeners.append(self._renewed)

    def _sent_back(self, news: SentBackMessage) -> None:
        stats = self._stats
        if news.stored_topic == SCHEDULE_TOPIC:
            stats.add_topic_puts(news.stored_topic, 1, news.wrote_bytes)
            stats.add_queue_puts(news.stored_topic, news.stored_queue_id, 1, news.wrote_bytes)
        stats.add_send_back(news.group, news.origin_topic)
        if news.is_dead_letter:
            stats.add_commercial(
                "SNDBCK2DLQ_TIMES",
                owner=news.ext_fields.get(OWNER_FIELD, NOBODY),
                group=news.group,
                topic=news.named_topic or NOBODY,
                kind="SEND_BACK_TO_DLQ",
                value=1,
            )

    def _committed(self, topic: str, size_bytes: int) -> None:
        self._stats.add_puts(topic, 1, size_bytes)

    def _delivered(self, queue_id: int, topic: str, messages: int, size_bytes: int) -> None:
        stats = self._stats
        stats.add_queue_gets(SCHEDULE_GROUP, SCHEDULE_TOPIC, queue_id, messages, size_bytes)
        stats.add_group_gets(SCHEDULE_GROUP, SCHEDULE_TOPIC, messages, size_bytes)
        stats.add_puts(topic, messages, size_bytes, requests=messages)

    def _read(self, topic: str, found: GetMessageResult) -> None:
        stats = self._stats
        stats.add_gets(TRANSACTION_GROUP, topic, found.message_count, found.total_bytes)
        stats.record_fall(
            TRANSACTION_GROUP,
            topic,
            _QUEUE_ID,
            size_bytes=found.behind_bytes,
            time_ms=self._clock.now_ms() - found.last_store_timestamp_ms,
        )

    def _renewed(self, size_bytes: int) -> None:
        self._stats.add_puts(TRANS_HALF_TOPIC, 1, size_bytes)


class ChannelActivity:
    """Counts connection events from the server's own statistics.

    Args:
        stats: The counters, which call :meth:`collect` before they are read.
        account: The server's statistics.
    """

    def __init__(self, stats: BrokerStats, account: RemotingStatistics) -> None:
        self._stats = stats
        self._account = account
        self._counted: dict[str, int] = {}
        stats.sources.append(self.collect)

    def collect(self) -> None:
        """Add the events since the last call."""
        account = self._account
        for kind, total in (
            ("CONNECT", account.connections_opened),
            ("CLOSE", account.connections_closed),
            ("IDLE", account.idle_closed),
            ("EXCEPTION", account.bad_frames + account.tls_refused + account.overload_closed),
        ):
            new = total - self._counted.get(kind, 0)
            if new:
                self._counted[kind] = total
                self._stats.add("CHANNEL_ACTIVITY", kind, new, times=new)
