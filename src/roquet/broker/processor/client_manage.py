"""Clients that come, stay and go: heartbeat, farewell, and the check of an expression.

Upstream's ClientManageProcessor. Owns the fingerprints of heartbeats by consumer group, by which a
client learns whether it may leave its subscriptions out of the next one; everything else about
clients is the managers'.

Heartbeats of the second kind carry a fingerprint, a hash of the subscriptions. The answer's
``IS_SUB_CHANGE`` says whether the broker wants them in full:

============================================================= =============
heartbeat                                                     IS_SUB_CHANGE
============================================================= =============
of the first kind, with fingerprint 0                         true
with another fingerprint than the group's last one            true
without subscriptions, while the broker has none of the group true
any other                                                     false
============================================================= =============

The third row is not upstream's: there, a group stays without subscriptions when the broker was
restarted, or when all its clients had lost their connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.producer import ProducerManager
from roquet.broker.manager.subscription_group import SubscriptionGroupManager
from roquet.broker.manager.topic_config import TopicConfigManager
from roquet.broker.request_body import CLIENT_BODY_BYTES_MAX, read_body
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.errors import RoquetError
from roquet.filter.tags import is_tag_type
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import retry_topic
from roquet.model.topic_config import PERM_READ, PERM_WRITE
from roquet.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
)
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import client as headers
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)
from roquet.runtime.clock import Clock

__all__ = ["ClientManageProcessor"]

log = logging.getLogger(__name__)

SYS_FLAG_UNIT_SUB = 2
"""The topic of a group whose clients live in units."""

FINGERPRINTS_PRUNED_AT = 1_024
"""Fingerprints of groups that are gone are looked for when there are at least so many."""

CLIENT_ID_LENGTH_MAX = 1_024
"""The id of a client is kept for as long as it is connected."""

CompileExpression = Callable[[str, str], object]
"""Takes the type of an expression and its text; raises RoquetError for a bad one."""


class ClientManageProcessor:
    """Answers what clients say of themselves.

    Args:
        config: The broker's settings.
        topics: Where the retry topics of groups are made.
        groups: The settings of groups.
        producers: Who produces.
        consumers: Who consumes.
        clock: The time.
        compile_expression: Tries an expression that is no list of tags; ``None`` when the broker
            knows tags only.
        stats: The broker's counters; without them, nobody sees what is counted.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        producers: ProducerManager,
        consumers: ConsumerManager,
        clock: Clock,
        compile_expression: CompileExpression | None = None,
        stats: BrokerStats | None = None,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._producers = producers
        self._consumers = consumers
        self._clock = clock
        self._compile_expression = compile_expression
        self._stats = BrokerStats(config.cluster_name, clock) if stats is None else stats
        self._fingerprints: dict[str, int] = {}
        self._prune_at = FINGERPRINTS_PRUNED_AT

    @processor(
        RequestCode.HEART_BEAT,
        header=headers.HeartbeatRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def heart_beat(
        self, context: RequestContext, header: headers.HeartbeatRequestHeader
    ) -> RemotingCommand:
        """A client is here, with these groups."""
        del header
        data = read_body(context, HeartbeatData, max_bytes=CLIENT_BODY_BYTES_MAX)
        consumers = [(_name(each.group_name), each) for each in data.consumer_data_set]
        producers = [_name(each.group_name) for each in data.producer_data_set]
        channel = self._channel(context, data.client_id)
        is_sub_change = data.heartbeat_fingerprint == 0
        for group, consumer in consumers:
            if (
                self._config.reject_pull_consumer
                and consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
            ):
                continue
            settings = self._groups.find(group)
            if settings is None:
                continue
            if self._is_news(group, data):
                is_sub_change = True
            self._remember(group, data.heartbeat_fingerprint)
            self._register_consumer(settings, consumer, channel, without_sub=_is_without_sub(data))
        for group in producers:
            began_ms = self._clock.now_ms()
            self._producers.register(group, channel)
            self._stats.add_registration(is_consumer=False, took_ms=self._clock.now_ms() - began_ms)
        answer = headers.HeartbeatResponseHeader(
            is_support_heart_beat_v2=True, is_sub_change=is_sub_change
        )
        return context.response(ResponseCode.SUCCESS, answer)

    def _is_news(self, group: str, data: HeartbeatData) -> bool:
        """Whether the broker wants the subscriptions of a group in full."""
        if data.without_sub:
            info = self._consumers.find(group)
            if info is None or not info.subscriptions:
                return True
        known = self._fingerprints.get(group)
        return known is not None and known != data.heartbeat_fingerprint

    def _remember(self, group: str, fingerprint: int) -> None:
        self._fingerprints[group] = fingerprint
        if len(self._fingerprints) >= self._prune_at:
            self._fingerprints = {
                name: value
                for name, value in self._fingerprints.items()
                if name == group or self._consumers.find(name) is not None
            }
            self._prune_at = max(FINGERPRINTS_PRUNED_AT, 2 * len(self._fingerprints))

    def _register_consumer(
        self,
        settings: SubscriptionGroupConfig,
        consumer: ConsumerData,
        channel: ClientChannel,
        *,
        without_sub: bool,
    ) -> None:
        group = _name(settings.group_name)
        subscriptions = consumer.subscription_data_set
        has_order_topic = any(
            each.topic is not None and self._topics.is_order_topic(each.topic)
            for each in subscriptions
        )
        self._topics.create_in_send_back(
            retry_topic(group),
            queue_nums=settings.retry_queue_nums,
            perm=PERM_READ | PERM_WRITE,
            sys_flag=SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
            order=has_order_topic,
        )
        began_ms = self._clock.now_ms()
        changed = self._consumers.register(
            group,
            channel,
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from_where,
            subscriptions=() if without_sub else subscriptions,
            notify_enabled=settings.notify_consumer_ids_changed_enable,
            update_subscriptions=not without_sub,
        )
        self._stats.add_registration(is_consumer=True, took_ms=self._clock.now_ms() - began_ms)
        if changed:
            log.info("group %s changed by %s", group, channel.connection.remote_address)

    @processor(
        RequestCode.UNREGISTER_CLIENT,
        header=headers.UnregisterClientRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def unregister_client(
        self, context: RequestContext, header: headers.UnregisterClientRequestHeader
    ) -> RemotingCommand:
        """A client leaves a producer group, a consumer group, or both."""
        channel = self._channel(context, header.client_id)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        group = header.consumer_group
        if group is not None:
            settings = self._groups.table.get(group)
            notify = settings is None or settings.notify_consumer_ids_changed_enable
            self._consumers.unregister(group, channel, notify_enabled=notify)
            if self._consumers.find(group) is None:
                self._fingerprints.pop(group, None)
        return context.response(ResponseCode.SUCCESS, headers.UnregisterClientResponseHeader())

    @processor(
        RequestCode.CHECK_CLIENT_CONFIG,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
    )
    def check_client_config(self, context: RequestContext) -> RemotingCommand:
        """Whether an expression can be used to filter with."""
        if not context.request.body:
            return context.response(ResponseCode.SUCCESS)
        body = read_body(context, CheckClientRequestBody, max_bytes=CLIENT_BODY_BYTES_MAX)
        subscription = body.subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return context.response(ResponseCode.SUCCESS)
        kind = subscription.expression_type
        if not self._config.property_filter or self._compile_expression is None:
            log.warning(
                "a consumer of group %.120s was refused to filter: enablePropertyFilter is false",
                body.group,
            )
            remark = f"The broker does not support consumer to filter message by {kind}"
            return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        try:
            self._compile_expression(kind, subscription.sub_string or "")
        except RoquetError as error:
            log.info("a consumer of group %.120s has a bad expression", body.group)
            return context.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=error.message)
        return context.response(ResponseCode.SUCCESS)

    def _channel(self, context: RequestContext, client_id: str | None) -> ClientChannel:
        if client_id is None or len(client_id) > CLIENT_ID_LENGTH_MAX:
            fault = "null" if client_id is None else f"longer than {CLIENT_ID_LENGTH_MAX}"
            raise RequestRefused(f"the client id is {fault}")
        request = context.request
        return ClientChannel(
            connection=context.connection,
            client_id=client_id,
            language=request.language,
            version=request.version,
            last_update_ns=self._clock.monotonic_ns(),
        )


def _name(group: str | None) -> str:
    if group is None:
        raise RequestRefused("the group name is null")
    return group


def _is_without_sub(data: HeartbeatData) -> bool:
    return data.without_sub and data.heartbeat_fingerprint != 0
