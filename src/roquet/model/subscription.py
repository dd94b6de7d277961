"""The subscriptions and the settings of a consumer group."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

SUBSCRIBE_ALL = "*"
EXPRESSION_TYPE_TAG = "TAG"
EXPRESSION_TYPE_SQL92 = "SQL92"


class SubscriptionData(Struct, rename="camel", kw_only=True):
    """One subscription, as a heartbeat carries it.

    Attributes:
        sub_string: The expression: ``*``, tags with ``||`` between, or SQL92.
        tags_set: The tags of the expression.
        code_set: Their hashes.
        sub_version: When the consumer last changed it, in milliseconds.
    """

    class_filter_mode: bool = False
    code_set: list[int] = field(default_factory=list)
    expression_type: str = EXPRESSION_TYPE_TAG
    sub_string: str | None = None
    sub_version: int = 0
    tags_set: list[str] = field(default_factory=list)
    topic: str | None = None


class SimpleSubscriptionData(Struct, rename="camel", kw_only=True):
    """One subscription, as stored in the settings of a group."""

    expression: str | None = None
    expression_type: str | None = None
    topic: str | None = None
    version: int = 0


class GroupRetryPolicyType(Enum):
    """How the time between two deliveries grows."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Struct, rename="camel", kw_only=True):
    """Each delay is a multiple of the one before."""

    initial_ms: int = field(default=5_000, name="initial")
    max_ms: int = field(default=7_200_000, name="max")
    multiplier: int = 2


class CustomizedRetryPolicy(Struct, rename="camel", kw_only=True):
    """A list of delays."""

    next_ms: list[int] = field(default_factory=list, name="next")


class GroupRetryPolicy(Struct, rename="camel", kw_only=True):
    """When a message is redelivered."""

    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED


class SubscriptionGroupConfig(Struct, rename="camel", kw_only=True):
    """One consumer group of a broker; the defaults are upstream's.

    Attributes:
        broker_id: The broker to read from.
        which_broker_when_consume_slowly: The broker to read from when far behind.
        retry_max_times: How often a message is redelivered before it becomes a dead letter.
    """

    attributes: dict[str, str] = field(default_factory=dict)
    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minutes: int = field(default=15, name="consumeTimeoutMinute")
    group_name: str | None = None
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    group_sys_flag: int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    which_broker_when_consume_slowly: int = 1
