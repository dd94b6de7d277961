"""Two brokers with static topics on one event loop, over loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from roquet.admin.static_plan import plan_create, plan_remap
from roquet.admin.static_topics import StaticTopics
from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.broker.service.topic_queue_mapping_clean import TopicQueueMappingCleanService
from roquet.client.response_errors import SUCCESS_ONLY
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.namesrv import Namesrv
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import ClusterInfo, TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import offset as offsets
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.testing.hooked_files import QuickFiles
from tests.patience import NEVER_MS, PATIENT
from tests.request_kit import send_header

A, B = "broker-a", "broker-b"
TOPIC = "Static"
GROUP = "billing"
BLOCK = 10_000
NOW_MS = 1_700_000_000_000
PROPERTIES = "UNIQ_KEY\x017F000001000018B4AAC200000000\x02WAIT\x01true\x02"


class Pair:
    """Brokers `broker-a` and `broker-b`, and a client of both."""

    def __init__(self, namesrv: Namesrv, client: RemotingClient, root: Path) -> None:
        self.namesrv = f"127.0.0.1:{namesrv.port}"
        self.client = client
        self.root = root
        self.brokers: dict[str, Broker] = {}

    async def start(self, name: str) -> None:
        config = BrokerConfig(
            broker_name=name,
            listen_port=0,
            store_root=str(self.root / name),
            namesrv_address=self.namesrv,
            fast_failure=False,
        )
        store = MessageStoreConfig(
            commit_log_file_bytes=1 << 20,
            consume_queue_file_bytes=20_000,
            index_slots=1000,
            index_entries=4000,
            delete_when=f"{ManualClock(0).local_hour():02}",
            os_page_cache_busy_timeout_ms=NEVER_MS,
        )
        broker = Broker(config, store, files=QuickFiles())
        await broker.start()
        self.brokers[name] = broker
        await broker.wait_registered()

    async def restart(self, name: str) -> None:
        await self.brokers[name].stop()
        await self.start(name)

    def mapping(self, name: str) -> TopicQueueMappingDetail:
        return self.brokers[name].components.mappings.table[TOPIC]

    # Requests

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes = b"",
        accept: Container[int] = SUCCESS_ONLY,
    ) -> RemotingCommand:
        """As in ``roquet.admin.static_topics.RequestClient``; names of brokers are addresses."""
        if address in self.brokers:
            address = self.brokers[address].address
        answer = await self.client.invoke(address, code, header, body=body)
        assert answer.code in accept, answer
        return answer

    async def cluster_info(self) -> ClusterInfo:
        answer = await self.ask(self.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_body(ClusterInfo, answer.body)

    async def route(self) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic=TOPIC)
        answer = await self.ask(self.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return decode_body(TopicRouteData, answer.body)

    async def create(self, queues: int, *brokers: str) -> None:
        topics = StaticTopics(self, await self.cluster_info())
        known = await topics.known(TOPIC)
        await topics.create(plan_create(TOPIC, queues, brokers, known, now_ms=NOW_MS))

    async def remap(self, *brokers: str) -> None:
        topics = StaticTopics(self, await self.cluster_info())
        known = await topics.known(TOPIC)
        await topics.remap(plan_remap(TOPIC, known, brokers, now_ms=NOW_MS))

    def cleaner(self, name: str, *, hour_ms: int = 0) -> TopicQueueMappingCleanService:
        """The service that cleans the mappings of a broker, as if at another time of day."""
        parts = self.brokers[name].components
        return TopicQueueMappingCleanService(
            msgspec.structs.replace(parts, clock=ManualClock(hour_ms))
        )

    # Clients

    async def send(
        self, broker: str, queue_id: int, *, accept: Container[int] = SUCCESS_ONLY, body: str = "x"
    ) -> tuple[int, int]:
        """The queue id and the offset of the response; -1 twice if it is refused."""
        header = send_header(
            TOPIC,
            producer_group="p",
            queue_id=queue_id,
            born_timestamp_ms=NOW_MS,
            properties=PROPERTIES,
        )
        code = RequestCode.SEND_MESSAGE_V2
        answer = await self.ask(broker, code, header, body=body.encode(), accept=accept)
        fields = answer.ext_fields or {}
        return int(fields.get("queueId", -1)), int(fields.get("queueOffset", -1))

    async def pull(
        self, broker: str, queue_id: int, queue_offset: int, **more: object
    ) -> RemotingCommand:
        settings: dict[str, object] = {
            "consumer_group": GROUP,
            "topic": TOPIC,
            "queue_id": queue_id,
            "queue_offset": queue_offset,
            "max_msg_nums": 32,
            "sys_flag": 4,
            "commit_offset": 0,
            "suspend_timeout_ms": 10_000,
            "subscription": "*",
            "sub_version": 0,
            "expression_type": "TAG",
        }
        header = PullMessageRequestHeader(**(settings | more))  # type: ignore[arg-type]
        code = RequestCode.PULL_MESSAGE
        return await self.ask(broker, code, header, accept=range(1000))

    async def offset(
        self, broker: str, code: RequestCode, header: Header, *, accept: Container[int] = range(99)
    ) -> int | str | None:
        """The offset of a response, or else its remark."""
        answer = await self.ask(broker, code, header, accept=accept)
        text = (answer.ext_fields or {}).get("offset")
        return answer.remark if text is None else int(text)

    async def commit(self, broker: str, queue_id: int, queue_offset: int) -> None:
        header = offsets.UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=queue_offset
        )
        await self.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def committed(self, broker: str, queue_id: int) -> int | str | None:
        header = offsets.QueryConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id
        )
        return await self.offset(broker, RequestCode.QUERY_CONSUMER_OFFSET, header)


@asynccontextmanager
async def static_pair(root: Path) -> AsyncIterator[Pair]:
    settings = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(root / "kvConfig.json"),
        config_store_path=str(root / "namesrv.properties"),
    )
    async with Namesrv(settings) as namesrv, RemotingClient(config=PATIENT) as client:
        pair = Pair(namesrv, client, root)
        try:
            for name in (A, B):
                await pair.start(name)
                pair.brokers[name].groups.find(GROUP)
            yield pair
        finally:
            for broker in pair.brokers.values():
                await broker.stop()


NOT_LEADER = frozenset({ResponseCode.NOT_LEADER_FOR_QUEUE})
