"""The state of the broker, and its settings.

The part of upstream's AdminBrokerProcessor behind ``mqadmin clusterList``, ``brokerStatus`` and
``getBrokerConfig``. Names and formats are upstream's, and all of its names are present, because
tools print ``N`` or fail where one is missing.
"""

from __future__ import annotations

from pathlib import Path

from roquet.broker.components import BrokerComponents
from roquet.broker.service.flow_control import RequestClass
from roquet.broker.settings import broker_properties
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
"""Upstream's values without a timer wheel; ``mqadmin`` fails without these names."""

_NOTHING_WAITS = {
    "ackThreadPoolQueueSize": "0",
    "ackThreadPoolQueueCapacity": "100000",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
}
"""Acknowledgements and ends of transactions never queue; the capacity is upstream's default."""


class RuntimeInfoAdmin:
    """Reports the state of the broker.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components

    @processor(RequestCode.GET_BROKER_CONFIG, permission=_LOOK, ports=ALL_PORTS)
    def broker_config(self, context: RequestContext) -> RemotingCommand:
        """Return the settings as lines of a properties file, without secrets."""
        text = format_properties(
            broker_properties(self._broker.config, self._broker.store.config, self._broker.tls)
        )
        version = encode_body(self._broker.settings.data_version).decode()
        answer = GetBrokerConfigResponseHeader(version=version)
        return context.response(ResponseCode.SUCCESS, answer, body=text.encode())

    @processor(RequestCode.GET_BROKER_RUNTIME_INFO, permission=_LOOK, ports=ALL_PORTS)
    async def runtime_info(self, context: RequestContext) -> RemotingCommand:
        """Return counters and offsets by name."""
        table = await self._broker.flow.run(RequestClass.ADMIN, self._store_info)
        table |= self._broker.stats.runtime_info() | self._flow_info() | self._delay_info()
        table |= _NOTHING_WAITS
        return context.response(ResponseCode.SUCCESS, body=encode_body(KVTable(table=table)))

    def _store_info(self) -> dict[str, str]:
        store = self._broker.store
        disk = self._broker.files.disk_usage(Path(self._broker.config.store_root))
        info = store.runtime_info() | _NO_TIMER
        info |= {
            "brokerActive": "true",
            "brokerVersionDesc": version_name(CURRENT_VERSION),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes()),
            "pageCacheLockTimeMills": str(store.lock_time_ms()),
            "earliestMessageTimeStamp": str(store.earliest_message_time_ms()),
            "startAcceptSendRequestTimeStamp": str(
                self._broker.config.start_accept_send_timestamp_ms
            ),
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
        config = self._broker.config
        queues = (
            ("send", RequestClass.SEND, config.send_queue_capacity),
            ("pull", RequestClass.PULL, config.pull_queue_capacity),
            ("litePull", RequestClass.PULL, config.pull_queue_capacity),
            ("query", RequestClass.QUERY, config.query_queue_capacity),
        )
        info: dict[str, str] = {}
        for name, kind, capacity in queues:
            info[f"{name}ThreadPoolQueueSize"] = str(self._broker.flow.waiting(kind))
            info[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            info[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return info

    def _delay_info(self) -> dict[str, str]:
        """The offset of each delay level, and the end of its queue."""
        info: dict[str, str] = {}
        for level, queue_offset in self._broker.delay_offsets.table.items():
            end = self._broker.store.max_offset_in_queue(SCHEDULE_TOPIC, level - 1)
            info[f"scheduleMessageOffset_{level}"] = f"{queue_offset},{end}"
        return info


def human_bytes(count: int) -> str:
    """Format a number of bytes as upstream prints it.

    Example:
        >>> human_bytes(631), human_bytes(1536), human_bytes(252 << 30)
        ('631 B', '1.5 KiB', '252.0 GiB')
    """
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}iB"
