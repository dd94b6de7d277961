"""Messages by id and by key, and their tracks, by upstream's rules.

Owns the searches and the tracks of ``queryMsgById`` and similar commands.
"""

from __future__ import annotations

from msgspec import Struct, field

from roquet.admin.messages import LONG_MAX, received_messages
from roquet.cli.mqadmin.failures import JavaFailure, client_failure
from roquet.cli.mqadmin.tool import SLOW_FACTOR, Tool, broker_address
from roquet.client import ReceivedMessage
from roquet.errors import ProtocolError
from roquet.model.message_id import OffsetMessageId
from roquet.model.topic import LMQ_PREFIX, WHEEL_TIMER_TOPIC
from roquet.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumeType
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.client import ConsumeMessageDirectlyRequestHeader
from roquet.remoting.headers.pull import QueryMessageRequestHeader, ViewMessageRequestHeader

__all__ = ["Query", "Track", "by_id", "consume_directly", "search", "tracks"]

UNIQUE_ID_MATCHES_MAX = 32
THREE_DAYS_MS = 3 * 24 * 60 * 60 * 1000
KEY_TYPE = "K"
TAG_TYPE = "T"


class Query(Struct, frozen=True, kw_only=True):
    """A search.

    Attributes:
        topic: The topic.
        key: The key.
        is_unique: Whether the key is a unique id.
        count_max: How many messages each broker may return.
        begin_ms: Stored at or after this time.
        end_ms: Stored at or before this time.
        cluster: Only in this cluster; of a light queue, the topic that it is in.
        kind: ``K`` for keys, ``T`` for tags.
        last_key: Where an earlier search ended.
    """

    topic: str
    key: str
    is_unique: bool = False
    count_max: int = 64
    begin_ms: int = 0
    end_ms: int = LONG_MAX
    cluster: str | None = None
    kind: str = KEY_TYPE
    last_key: str | None = None

    @property
    def is_light(self) -> bool:
        """Whether the topic is a light queue."""
        return self.topic.startswith(LMQ_PREFIX)


class _QueryHeader(QueryMessageRequestHeader, kw_only=True):
    is_unique_key: bool = field(default=False, name="_UNIQUE_KEY_QUERY")


async def search(tool: Tool, query: Query) -> list[ReceivedMessage]:
    """The messages that match.

    Raises:
        JavaFailure: There is none, or no broker has the topic.
    """
    elsewhere = query.is_light or query.topic == WHEEL_TIMER_TOPIC
    try:
        route = await tool.route(query.cluster if query.cluster and elsewhere else query.topic)
    except JavaFailure:
        route = None
    brokers = [] if route is None else route.broker_datas
    if query.cluster and not query.is_light:
        brokers = [data for data in brokers if data.cluster == query.cluster]
    if not brokers:
        text = f"The topic[{query.topic}] not matched route info"
        raise client_failure(text, ResponseCode.TOPIC_NOT_EXIST)
    header = _QueryHeader(
        topic=(query.cluster or "") if query.is_light else query.topic,
        key=query.key,
        max_num=query.count_max,
        begin_timestamp_ms=query.begin_ms,
        end_timestamp_ms=query.end_ms,
        index_type=None if query.kind == KEY_TYPE else query.kind,
        last_key=query.last_key,
        is_unique_key=query.is_unique,
    )
    found: list[ReceivedMessage] = []
    for data in brokers:
        code = RequestCode.QUERY_MESSAGE
        try:
            answer = await tool.ask(
                broker_address(data), code, header, timeout_ms=tool.timeout_ms * SLOW_FACTOR
            )
        except JavaFailure:
            continue
        messages = received_messages(answer.body, data.broker_name or "")
        found += [message for message in messages if _matches(query, message)]
    if not found:
        text = "query message by key finished, but no message."
        raise client_failure(text, ResponseCode.NO_MESSAGE)
    return found


def _matches(query: Query, message: ReceivedMessage) -> bool:
    if query.is_unique:
        return message.message_id == query.key
    if message.topic != query.topic and not query.is_light:
        return False
    return message.tags == query.key if query.kind == TAG_TYPE else query.key in message.keys


async def by_id(
    tool: Tool, topic: str, message_id: str, *, cluster: str | None = None
) -> ReceivedMessage:
    """The message that has an id: where it is stored, or the one its producer gave it.

    Requests go only to brokers of the cluster, whatever address an id names.
    """
    try:
        place = OffsetMessageId.parse(message_id)
    except ProtocolError:
        place = None
    if place is not None:
        address = str(place.store_host)
        table = (await tool.cluster_info()).broker_addr_table or {}
        names = [name for name, data in table.items() if address in data.broker_addrs.values()]
        header = ViewMessageRequestHeader(topic=topic, physical_offset=place.physical_offset)
        try:
            if names:
                answer = await tool.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
                return received_messages(answer.body, names[0])[0]
        except JavaFailure:
            pass
    query = Query(
        topic=topic,
        key=message_id,
        is_unique=True,
        count_max=UNIQUE_ID_MATCHES_MAX,
        begin_ms=tool.now_ms - THREE_DAYS_MS,
        cluster=cluster,
    )
    return (await search(tool, query))[0]


async def consume_directly(
    tool: Tool, message: ReceivedMessage, group: str, client_id: str
) -> ConsumeMessageDirectlyResult:
    """Let a client consume a message now."""
    header = ConsumeMessageDirectlyRequestHeader(
        consumer_group=group,
        client_id=client_id,
        msg_id=message.offset_message_id,
        topic=message.topic,
    )
    return await tool.ask_body(
        ConsumeMessageDirectlyResult,
        str(message.store_host),
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        header,
    )


# --------------------------------------------------------------------------------------- tracks


class Track(Struct, frozen=True, kw_only=True, rename="camel"):
    """The track of a message in a group."""

    consumer_group: str
    track_type: str = "UNKNOWN"
    exception_desc: str | None = None

    @property
    def text(self) -> str:
        """The track as upstream prints it."""
        return (
            f"MessageTrack [consumerGroup={self.consumer_group}, trackType={self.track_type}, "
            f"exceptionDesc={self.exception_desc or 'null'}]"
        )


async def tracks(tool: Tool, message: ReceivedMessage) -> list[Track]:
    """The tracks of a message, by group."""
    return [await _track(tool, message, group) for group in await tool.groups_of(message.topic)]


async def _track(tool: Tool, message: ReceivedMessage, group: str) -> Track:
    try:
        clients = await tool.connections(group)
        if clients.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return Track(consumer_group=group, track_type="PULL")
        if clients.consume_type is not ConsumeType.CONSUME_PASSIVELY:
            return Track(consumer_group=group)
        is_consumed = await _is_consumed(tool, message, group)
    except JavaFailure as failure:
        return _failed(group, failure)
    if not is_consumed:
        return Track(consumer_group=group, track_type="NOT_CONSUME_YET")
    subscription = clients.subscription_table.get(message.topic)
    tags = [] if subscription is None else subscription.tags_set
    is_wanted = not tags or "*" in tags or message.tags in tags
    return Track(
        consumer_group=group, track_type="CONSUMED" if is_wanted else "CONSUMED_BUT_FILTERED"
    )


def _failed(group: str, failure: JavaFailure) -> Track:
    words = f"CODE:{failure.code} DESC:{failure.remark}"
    if failure.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return Track(consumer_group=group, track_type="NOT_ONLINE", exception_desc=words)
    if failure.code == ResponseCode.BROADCAST_CONSUMPTION:
        return Track(consumer_group=group, track_type="CONSUME_BROADCASTING")
    return Track(consumer_group=group, exception_desc=str(failure))


async def _is_consumed(tool: Tool, message: ReceivedMessage, group: str) -> bool:
    stats = await tool.progress(group)
    table = (await tool.cluster_info()).broker_addr_table or {}
    for queue, each in stats.offset_table.items():
        data = table.get(queue.broker_name)
        if (
            queue.topic == message.topic
            and queue.queue_id == message.queue_id
            and data is not None
            and data.broker_addrs.get(MASTER_ID) == str(message.store_host)
            and each.consumer_offset > message.queue_offset
        ):
            return True
    return False
