"""Client management: heartbeats, unregistration, and the check of filter expressions.

Upstream's ClientManageProcessor. Owns the heartbeat fingerprints by consumer group, from which a
client learns whether it may omit its subscriptions from the next heartbeat; the managers own all
other client state.

V2 heartbeats carry a fingerprint, a hash of the subscriptions. ``IS_SUB_CHANGE`` in the response
says whether the broker wants them in full:

============================================================= =============
heartbeat                                                     IS_SUB_CHANGE
============================================================= =============
V1, with fingerprint 0                                        true
with another fingerprint than the group's last one            true
without subscriptions, while the broker has none of the group true
any other                                                     false
============================================================= =============

A heartbeat with many groups is processed in steps, and other work runs in between.

The third row is not upstream's: there, a group stays without subscriptions after a broker restart,
or after all its clients lost their connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Generator

from roquet.broker.components import BrokerComponents
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.manager.consumer_filter import compile_expression
from roquet.broker.request_body import CLIENT_BODY_BYTES_MAX, read_body
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
from roquet.remoting.turn_scheduler import RequestClass
from roquet.runtime.log_budget import LogBudget

__all__ = ["ClientManageProcessor"]

log = logging.getLogger(__name__)

SYS_FLAG_UNIT_SUB = 2
"""The topic of a group whose clients live in units."""

FINGERPRINTS_PRUNED_AT = 1_024
"""Fingerprints of removed groups are purged once there are at least this many."""

CLIENT_ID_LENGTH_MAX = 1_024
"""A client's id is kept while it is connected."""

GROUPS_A_STEP = 20
"""Groups of a heartbeat that are processed before other work may run."""


class ClientManageProcessor:
    """Handles heartbeats, unregistration, and expression checks.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._broker = components
        self._lines = LogBudget(log, components.clock)
        self._fingerprints: dict[str, int] = {}
        self._prune_at = FINGERPRINTS_PRUNED_AT

    @processor(
        RequestCode.HEART_BEAT,
        header=headers.HeartbeatRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def heart_beat(
        self, context: RequestContext, header: headers.HeartbeatRequestHeader
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Register a client with its groups, or refresh it."""
        del header
        data = read_body(context, HeartbeatData, max_bytes=CLIENT_BODY_BYTES_MAX)
        beat = self._beat(context, data)
        if len(data.consumer_data_set) + len(data.producer_data_set) > GROUPS_A_STEP:
            return _in_turns(beat)
        while True:
            try:
                next(beat)
            except StopIteration as end:
                answer: RemotingCommand = end.value
                return answer

    def _beat(
        self, context: RequestContext, data: HeartbeatData
    ) -> Generator[None, None, RemotingCommand]:
        """Process a heartbeat; other work may run at each ``yield``."""
        consumers = [(_name(each.group_name), each) for each in data.consumer_data_set]
        producers = [_name(each.group_name) for each in data.producer_data_set]
        channel = self._channel(context, data.client_id)
        is_sub_change = data.heartbeat_fingerprint == 0
        for number, (group, consumer) in enumerate(consumers, 1):
            if self._beat_of_consumer(group, consumer, data, channel):
                is_sub_change = True
            if number % GROUPS_A_STEP == 0:
                yield
                if channel.connection.is_closed:
                    break
        if channel.connection.is_closed:
            producers = []
        for number, group in enumerate(producers, len(consumers) + 1):
            began_ms = self._broker.clock.now_ms()
            self._broker.producers.register(group, channel)
            self._broker.stats.add_registration(
                is_consumer=False, took_ms=self._broker.clock.now_ms() - began_ms
            )
            if number % GROUPS_A_STEP == 0:
                yield
                if channel.connection.is_closed:
                    break
        answer = headers.HeartbeatResponseHeader(
            is_support_heart_beat_v2=True, is_sub_change=is_sub_change
        )
        return context.response(ResponseCode.SUCCESS, answer)

    def _beat_of_consumer(
        self, group: str, consumer: ConsumerData, data: HeartbeatData, channel: ClientChannel
    ) -> bool:
        """Register a consumer of a group; return whether its subscriptions are wanted in full."""
        if (
            self._broker.config.reject_pull_consumer
            and consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
        ):
            return False
        # First: a refused client must not create a group and a retry topic, which would stay.
        if not self._broker.consumers.takes(group, channel.connection):
            return False
        settings = self._broker.groups.find(group)
        if settings is None:
            return False
        is_news = self._is_news(group, data)
        self._remember(group, data.heartbeat_fingerprint)
        self._register_consumer(settings, consumer, channel, without_sub=_is_without_sub(data))
        return is_news

    def _is_news(self, group: str, data: HeartbeatData) -> bool:
        """Whether the broker wants the subscriptions of a group in full."""
        if data.without_sub:
            info = self._broker.consumers.find(group)
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
                if name == group or self._broker.consumers.find(name) is not None
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
            each.topic is not None and self._broker.topics.is_order_topic(each.topic)
            for each in subscriptions
        )
        self._broker.topics.create_in_send_back(
            retry_topic(group),
            queue_nums=settings.retry_queue_nums,
            perm=PERM_READ | PERM_WRITE,
            sys_flag=SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
            order=has_order_topic,
        )
        began_ms = self._broker.clock.now_ms()
        changed = self._broker.consumers.register(
            group,
            channel,
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from_where,
            subscriptions=() if without_sub else subscriptions,
            notify_enabled=settings.notify_consumer_ids_changed_enable,
            update_subscriptions=not without_sub,
        )
        self._broker.stats.add_registration(
            is_consumer=True, took_ms=self._broker.clock.now_ms() - began_ms
        )
        if changed:
            self._lines.info("group %s changed by %s", group, channel.connection.remote_address)

    @processor(
        RequestCode.UNREGISTER_CLIENT,
        header=headers.UnregisterClientRequestHeader,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def unregister_client(
        self, context: RequestContext, header: headers.UnregisterClientRequestHeader
    ) -> RemotingCommand:
        """Remove a client from a producer group, a consumer group, or both."""
        channel = self._channel(context, header.client_id)
        if header.producer_group is not None:
            self._broker.producers.unregister(header.producer_group, channel)
        group = header.consumer_group
        if group is not None:
            settings = self._broker.groups.table.get(group)
            notify = settings is None or settings.notify_consumer_ids_changed_enable
            self._broker.consumers.unregister(group, channel, notify_enabled=notify)
            if self._broker.consumers.find(group) is None:
                self._fingerprints.pop(group, None)
        return context.response(ResponseCode.SUCCESS, headers.UnregisterClientResponseHeader())

    @processor(
        RequestCode.CHECK_CLIENT_CONFIG,
        permission=Permission(Action.SUB, Resource.GROUP),
        ports=ALL_PORTS,
        request_class=RequestClass.CLIENT,
    )
    def check_client_config(self, context: RequestContext) -> RemotingCommand:
        """Check whether a filter expression is valid and supported."""
        if not context.request.body:
            return context.response(ResponseCode.SUCCESS)
        body = read_body(context, CheckClientRequestBody, max_bytes=CLIENT_BODY_BYTES_MAX)
        subscription = body.subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return context.response(ResponseCode.SUCCESS)
        kind = subscription.expression_type
        if not self._broker.config.property_filter:
            log.warning(
                "refused a filter of consumer group %.120s: enablePropertyFilter is false",
                body.group,
            )
            remark = f"The broker does not support consumer to filter message by {kind}"
            return context.response(ResponseCode.SYSTEM_ERROR, remark=remark)
        try:
            compile_expression(kind, subscription.sub_string or "")
        except RoquetError as error:
            log.info("a consumer of group %.120s has an invalid expression", body.group)
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
            last_update_ns=self._broker.clock.monotonic_ns(),
        )


async def _in_turns(beat: Generator[None, None, RemotingCommand]) -> RemotingCommand:
    while True:
        try:
            next(beat)
        except StopIteration as end:
            answer: RemotingCommand = end.value
            return answer
        await asyncio.sleep(0)


def _name(group: str | None) -> str:
    if group is None:
        raise RequestRefused("the group name is null")
    return group


def _is_without_sub(data: HeartbeatData) -> bool:
    return data.without_sub and data.heartbeat_fingerprint != 0
