"""How the broker is, and how it is set.

The part of upstream's AdminBrokerProcessor that ``mqadmin clusterList``, ``brokerStatus`` and
``getBrokerConfig`` ask. Names and forms are upstream's, and all of its names are there, because
tools print ``N`` or fail where one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from roquet.broker.config import BrokerConfig
from roquet.broker.service.flow_control import FlowControl, RequestClass
from roquet.broker.settings import broker_properties
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.model.data_version import DataVersion
from roquet.model.properties_text import format_properties
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode, version_name
from roquet.remoting.command import CURRENT_VERSION, RemotingCommand
from roquet.remoting.headers.admin import GetBrokerConfigResponseHeader
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.remoting.tls_settings import TlsSettings
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.message_store import MessageStore

__all__ = ["RuntimeInfoAdmin", "human_bytes"]

_LOOK = Permission(Action.GET, Resource.CLUSTER)
_UNITS = "KMGTPE"

_NO_TIMER = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}
"""What upstream says when there is no timer wheel; ``mqadmin`` fails without these names."""

_NOTHING_WAITS = {
    "ackThreadPoolQueueSize": "0",
    "ackThreadPoolQueueCapacity": "100000",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
}
"""Acknowledgements and ends of transactions never wait; the room is upstream's default."""


class RuntimeInfoAdmin:
    """Answers how the broker is.

    Args:
        config: The broker's settings.
        store: The messages, and their settings.
        flow: What waits; threads for what may be on disk only.
        clock: The time.
        files: The file system.
        tls: The settings of TLS.
        config_version: Goes up when settings are changed.
        delay_offsets: How far the delay levels are.
        stats: The broker's counters.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        store: MessageStore,
        flow: FlowControl,
        clock: Clock,
        files: Files,
        tls: TlsSettings | None = None,
        config_version: DataVersion | None = None,
        delay_offsets: Mapping[int, int] | None = None,
        stats: BrokerStats | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._flow = flow
        self._files = files
        self._tls = tls
        self._stats = BrokerStats(config.cluster_name, clock) if stats is None else stats
        self._config_version = config_version or DataVersion(timestamp_ms=clock.now_ms())
        self._delay_offsets = {} if delay_offsets is None else delay_offsets

    @processor(RequestCode.GET_BROKER_CONFIG, permission=_LOOK, ports=ALL_PORTS)
    def broker_config(self, context: RequestContext) -> RemotingCommand:
        """The settings, as the lines of a properties file, without secrets."""
        text = format_properties(broker_properties(self._config, self._store.config, self._tls))
        version = encode_body(self._config_version).decode()
        answer = GetBrokerConfigResponseHeader(version=version)
        return context.response(ResponseCode.SUCCESS, answer, body=text.encode())

    @processor(RequestCode.GET_BROKER_RUNTIME_INFO, permission=_LOOK, ports=ALL_PORTS)
    async def runtime_info(self, context: RequestContext) -> RemotingCommand:
        """Counters and marks by name."""
        table = await self._flow.run(RequestClass.ADMIN, self._store_info)
        table |= self._stats.runtime_info() | self._flow_info() | self._delay_info()
        table |= _NOTHING_WAITS
        return context.response(ResponseCode.SUCCESS, body=encode_body(KVTable(table=table)))

    def _store_info(self) -> dict[str, str]:
        store = self._store
        disk = self._files.disk_usage(Path(self._config.store_root))
        info = store.runtime_info() | _NO_TIMER
        info |= {
            "brokerActive": "true",
            "brokerVersionDesc": version_name(CURRENT_VERSION),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes()),
            "pageCacheLockTimeMills": str(store.lock_time_ms()),
            "earliestMessageTimeStamp": str(store.earliest_message_time_ms()),
            "startAcceptSendRequestTimeStamp": str(self._config.start_accept_send_timestamp_ms),
            "remainTransientStoreBufferNumbs": str(store.remaining_transient_buffers()),
            "remainHowManyDataToFlush": human_bytes(store.remaining_to_flush_bytes()),
            "commitLogDirCapacity": (
                f"Total : {human_bytes(disk.total_bytes)}, Free : {human_bytes(disk.free_bytes)}."
            ),
        }
        if store.config.uses_transient_pool:
            info["remainHowManyDataToCommit"] = human_bytes(store.remaining_to_commit_bytes())
        return info

    def _flow_info(self) -> dict[str, str]:
        config = self._config
        queues = (
            ("send", RequestClass.SEND, config.send_queue_capacity),
            ("pull", RequestClass.PULL, config.pull_queue_capacity),
            ("litePull", RequestClass.PULL, config.pull_queue_capacity),
            ("query", RequestClass.QUERY, config.query_queue_capacity),
        )
        info: dict[str, str] = {}
        for name, kind, capacity in queues:
            info[f"{name}ThreadPoolQueueSize"] = str(self._flow.waiting(kind))
            info[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            info[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return info

    def _delay_info(self) -> dict[str, str]:
        """Where each delay level is, and where it ends."""
        info: dict[str, str] = {}
        for level, queue_offset in self._delay_offsets.items():
            end = self._store.max_offset_in_queue(SCHEDULE_TOPIC, level - 1)
            info[f"scheduleMessageOffset_{level}"] = f"{queue_offset},{end}"
        return info


def human_bytes(count: int) -> str:
    """A number of bytes for people, as upstream prints it.

    Example:
        >>> human_bytes(631), human_bytes(1536), human_bytes(252 << 30)
        ('631 B', '1.5 KiB', '252.0 GiB')
    """
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}iB"
