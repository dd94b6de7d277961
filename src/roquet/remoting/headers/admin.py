"""Headers of administration: topics, groups, progress, statistics, users and policies."""

from __future__ import annotations

from msgspec import field

from roquet.remoting.headers.base import (
    Header,
    Int32,
    Int64,
    RpcHeader,
    TopicHeader,
    TopicQueueHeader,
)

__all__ = [
    "AclRequestHeader",
    "CheckRocksdbCqWriteProgressRequestHeader",
    "CreateTopicListRequestHeader",
    "CreateTopicRequestHeader",
    "DeleteAclRequestHeader",
    "DeleteExpiredLogRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicRequestHeader",
    "ExportRocksDBConfigToJsonRequestHeader",
    "GetAllSubscriptionGroupRequestHeader",
    "GetAllSubscriptionGroupResponseHeader",
    "GetAllTopicConfigRequestHeader",
    "GetAllTopicConfigResponseHeader",
    "GetBrokerConfigResponseHeader",
    "GetConsumeStatsInBrokerRequestHeader",
    "GetConsumeStatsRequestHeader",
    "GetSubscriptionGroupConfigRequestHeader",
    "ListAclsRequestHeader",
    "ListUsersRequestHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumeTimeSpanRequestHeader",
    "QuerySubscriptionByConsumerRequestHeader",
    "QueryTopicsByConsumerRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
    "TopicRequestHeader",
    "UpdateGroupForbiddenRequestHeader",
    "UserRequestHeader",
    "ViewBrokerStatsDataRequestHeader",
]


class TopicRequestHeader(TopicHeader, kw_only=True):
    """Only a topic, for requests about its settings, statistics or groups."""

    topic: str


class CreateTopicRequestHeader(TopicHeader, kw_only=True):
    """A topic to create or change.

    Attributes:
        perm: 4 read, 2 write, 1 may be inherited.
        attributes: Changes, as ``+name=value,-name``.
    """

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class CreateTopicListRequestHeader(RpcHeader, kw_only=True):
    """No fields of its own; the topics are in the body."""


class DeleteTopicRequestHeader(TopicHeader, kw_only=True):
    """A topic to drop."""

    topic: str


class GetAllTopicConfigRequestHeader(Header, kw_only=True):
    """A page of all topics; clients before 5.3.4 request all at once, without a header.

    Attributes:
        topic_seq: Where the page starts.
        data_version: The version of the earlier pages.
    """

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponseHeader(Header, kw_only=True):
    """How many topics there are on all pages."""

    total_topic_num: Int32


class GetAllSubscriptionGroupRequestHeader(Header, kw_only=True):
    """A page of all groups; clients before 5.3.4 request all at once, without a header."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupResponseHeader(Header, kw_only=True):
    """How many groups there are on all pages."""

    total_group_num: Int32


class GetSubscriptionGroupConfigRequestHeader(RpcHeader, kw_only=True):
    """One group."""

    group: str


class DeleteSubscriptionGroupRequestHeader(RpcHeader, kw_only=True):
    """A group to drop, perhaps with its offsets."""

    group_name: str
    clean_offset: bool = False


class DeleteExpiredLogRequestHeader(Header, kw_only=True):
    """Expired segments; or, a Roquet extension, those archived up to a physical offset."""

    archived_offset: Int64 | None = None


class UpdateGroupForbiddenRequestHeader(TopicHeader, kw_only=True):
    """Whether a group may read a topic; without ``readable`` only a query."""

    group: str
    topic: str
    readable: bool | None = None


class QueryConsumeTimeSpanRequestHeader(TopicHeader, kw_only=True):
    """Store times in the queues of a group."""

    topic: str
    group: str


class QueryTopicsByConsumerRequestHeader(RpcHeader, kw_only=True):
    """The topics of a group."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicHeader, kw_only=True):
    """The subscription of a group to a topic."""

    group: str
    topic: str | None = None


class GetConsumeStatsRequestHeader(TopicHeader, kw_only=True):
    """The progress of a group, in one topic, in some, or in all.

    Attributes:
        topic_list: Topics separated by semicolons.
    """

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerRequestHeader(Header, kw_only=True):
    """The progress of all groups, or of orderly ones only."""

    is_order: bool = False


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """One statistic."""

    stats_name: str
    stats_key: str


class QueryConsumeQueueRequestHeader(TopicQueueHeader, kw_only=True):
    """Entries of a consume queue, and whether a group's filter matches them."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header, kw_only=True):
    """A half message to check again."""

    topic: str | None = None
    msg_id: str | None = None


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """The version of the settings in the body, as JSON."""

    version: str


class CheckRocksdbCqWriteProgressRequestHeader(Header, kw_only=True):
    """A topic whose two kinds of consume queue are to be compared."""

    topic: str
    check_store_time_ms: Int64 = field(default=0, name="checkStoreTime")


class ExportRocksDBConfigToJsonRequestHeader(Header, kw_only=True):
    """The settings to export, separated by semicolons."""

    config_type: str


class UserRequestHeader(Header, kw_only=True):
    """A user to create, change, drop or show; the rest is in the body."""

    username: str | None = None


class ListUsersRequestHeader(Header, kw_only=True):
    """Users whose name contains a text."""

    filter: str | None = None


class AclRequestHeader(Header, kw_only=True):
    """The subject of policies to create, change or show; the rest is in the body."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, kw_only=True):
    """Policies to drop."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header, kw_only=True):
    """Policies whose subject and resource contain texts."""

    subject_filter: str | None = None
    resource_filter: str | None = None
