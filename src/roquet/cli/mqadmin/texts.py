"""Settings and bodies as Java prints them.

Owns the ``toString()`` texts of objects that upstream's tool prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.java import bool_text, map_text, null_text
from roquet.model.fastjson import dumps, loads
from roquet.model.subscription import GroupRetryPolicy, SubscriptionGroupConfig
from roquet.model.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig
from roquet.remoting.bodies.codec import encode_body

__all__ = [
    "attributes_wire",
    "group_fields",
    "group_text",
    "parse_attributes",
    "pretty_json",
    "topic_text",
]


def topic_text(config: TopicConfig) -> str:
    """The settings of a topic."""
    perm = "".join(
        letter if config.perm & bit else "-"
        for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={bool_text(config.order)}, attributes={map_text(config.attributes)}]"
    )


def group_fields(config: SubscriptionGroupConfig) -> dict[str, str]:
    """The settings of a group by name, in upstream's order; ``null`` for none."""
    subscriptions = config.subscription_data_set
    values: dict[str, object] = {
        "groupName": config.group_name,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeMessageOrderly": config.consume_message_orderly,
        "retryQueueNums": config.retry_queue_nums,
        "retryMaxTimes": config.retry_max_times,
        "groupRetryPolicy": _policy_text(config.group_retry_policy),
        "brokerId": config.broker_id,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "groupSysFlag": config.group_sys_flag,
        "consumeTimeoutMinute": config.consume_timeout_minutes,
        "subscriptionDataSet": None if subscriptions is None else _set_text(subscriptions),
        "attributes": map_text(config.attributes),
    }
    return {name: null_text(value) for name, value in values.items()}


def group_text(config: SubscriptionGroupConfig) -> str:
    """The settings of a group."""
    parts = ", ".join(f"{name}={value}" for name, value in group_fields(config).items())
    return f"SubscriptionGroupConfig{{{parts}}}"


def _set_text(subscriptions: Sequence[Struct]) -> str:
    return f"[{', '.join(encode_body(each).decode() for each in subscriptions)}]"


def _policy_text(policy: GroupRetryPolicy) -> str:
    exponential, customized = policy.exponential_retry_policy, policy.customized_retry_policy
    first = (
        "null"
        if exponential is None
        else f"ExponentialRetryPolicy{{initial={exponential.initial_ms}, max={exponential.max_ms}, "
        f"multiplier={exponential.multiplier}}}"
    )
    second = "null" if customized is None else f"CustomizedRetryPolicy{{next={customized.next_ms}}}"
    return (
        f"GroupRetryPolicy{{type={policy.type.value}, exponentialRetryPolicy={first}, "
        f"customizedRetryPolicy={second}}}"
    )


def pretty_json(body: Struct | Mapping[str, object]) -> str:
    """A body as fastjson prints it for people."""
    return dumps(loads(encode_body(body)), pretty=True)


def parse_attributes(text: str) -> dict[str, str]:
    """Parse ``+a=b,-c``: values by name, with the sign before the name.

    Raises:
        JavaFailure: A sign is missing, or a name is repeated.

    Example:
        >>> parse_attributes("+message.type=FIFO,-queue.type")
        {'+message.type': 'FIFO', '-queue.type': ''}
    """
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        sign, what = ("+", "add/alter") if equals else ("-", "delete")
        if sign not in key:
            raise _wrong(f"{what} attribute format is wrong: {key}")
        if key in found:
            raise _wrong(f"key duplication: {key}")
        found[key] = value
    return found


def _wrong(text: str) -> JavaFailure:
    return JavaFailure("java.lang.RuntimeException", text)


def attributes_wire(attributes: Mapping[str, str]) -> str:
    """Such attributes as one text."""
    return ",".join(f"{key}={value}" if value else key for key, value in attributes.items())
