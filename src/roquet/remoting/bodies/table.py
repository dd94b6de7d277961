"""Which request code has which JSON bodies.

Owns the two tables below. A code that is not in a table has no body, or one that is not JSON:
records, a batch of messages, the lines of a properties file, plain text.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from roquet.model.data_version import DataVersion
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingDetail
from roquet.remoting.bodies import broker, client, group, offset, register, route, topic
from roquet.remoting.codes import RequestCode as Code

__all__ = ["REQUEST_BODIES", "RESPONSE_BODIES"]

REQUEST_BODIES: Mapping[Code, type[Struct]] = {
    Code.HEART_BEAT: client.HeartbeatData,
    Code.CHECK_CLIENT_CONFIG: client.CheckClientRequestBody,
    Code.LOCK_BATCH_MQ: client.LockBatchRequestBody,
    Code.UNLOCK_BATCH_MQ: client.UnlockBatchRequestBody,
    Code.QUERY_ASSIGNMENT: client.QueryAssignmentRequestBody,
    Code.SET_MESSAGE_REQUEST_MODE: client.SetMessageRequestModeRequestBody,
    Code.BATCH_ACK_MESSAGE: client.BatchAckMessageRequestBody,
    Code.RESET_CONSUMER_CLIENT_OFFSET: offset.ResetOffsetBody,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: topic.CreateTopicListRequestBody,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: TopicQueueMappingDetail,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SubscriptionGroupConfig,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: group.SubscriptionGroupList,
    Code.REGISTER_BROKER: register.RegisterBrokerBody,
    Code.REGISTER_TOPIC_IN_NAMESRV: route.TopicRouteData,
    Code.QUERY_DATA_VERSION: DataVersion,
    Code.AUTH_CREATE_USER: broker.UserInfo,
    Code.AUTH_UPDATE_USER: broker.UserInfo,
    Code.AUTH_CREATE_ACL: broker.AclInfo,
    Code.AUTH_UPDATE_ACL: broker.AclInfo,
    Code.NOTIFY_BROKER_ROLE_CHANGED: broker.SyncStateSet,
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: broker.SyncStateSet,
}
"""The body of each request that has one."""

RESPONSE_BODIES: Mapping[Code, type[Struct]] = {
    Code.GET_CONSUMER_LIST_BY_GROUP: client.GetConsumerListByGroupResponseBody,
    Code.LOCK_BATCH_MQ: client.LockBatchResponseBody,
    Code.QUERY_ASSIGNMENT: client.QueryAssignmentResponseBody,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: client.MessageRequestModeSerializeWrapper,
    Code.GET_CONSUMER_CONNECTION_LIST: client.ConsumerConnection,
    Code.GET_PRODUCER_CONNECTION_LIST: client.ProducerConnection,
    Code.GET_ALL_PRODUCER_INFO: client.ProducerTableInfo,
    Code.GET_CONSUMER_RUNNING_INFO: client.ConsumerRunningInfo,
    Code.CONSUME_MESSAGE_DIRECTLY: client.ConsumeMessageDirectlyResult,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: offset.GetConsumerStatusBody,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: offset.GetConsumerStatusBody,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: offset.ResetOffsetBody,
    Code.QUERY_CORRECTION_OFFSET: offset.QueryCorrectionOffsetBody,
    Code.GET_CONSUME_STATS: offset.ConsumeStats,
    Code.GET_BROKER_CONSUME_STATS: offset.ConsumeStatsList,
    Code.QUERY_CONSUME_TIME_SPAN: offset.QueryConsumeTimeSpanBody,
    Code.QUERY_CONSUME_QUEUE: offset.QueryConsumeQueueResponseBody,
    Code.GET_ALL_CONSUMER_OFFSET: offset.ConsumerOffsetSerializeWrapper,
    Code.GET_ALL_DELAY_OFFSET: offset.DelayOffsetSerializeWrapper,
    Code.GET_ALL_TOPIC_CONFIG: topic.TopicConfigAndMappingSerializeWrapper,
    Code.GET_TOPIC_CONFIG: topic.TopicConfigAndQueueMapping,
    Code.GET_TOPIC_STATS_INFO: topic.TopicStatsTable,
    Code.QUERY_TOPICS_BY_CONSUMER: topic.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topic.TopicList,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topic.TopicList,
    Code.GET_TOPICS_BY_CLUSTER: topic.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: topic.TopicList,
    Code.GET_UNIT_TOPIC_LIST: topic.TopicList,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: topic.TopicList,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: topic.TopicList,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: group.GroupList,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: group.QuerySubscriptionResponseBody,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: group.SubscriptionGroupWrapper,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupConfig,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: group.GroupForbidden,
    Code.VIEW_BROKER_STATS_DATA: broker.BrokerStatsData,
    Code.GET_BROKER_RUNTIME_INFO: broker.KVTable,
    Code.GET_BROKER_HA_STATUS: broker.HARuntimeInfo,
    Code.GET_BROKER_EPOCH_CACHE: broker.EpochEntryCache,
    Code.AUTH_GET_USER: broker.UserInfo,
    Code.AUTH_GET_ACL: broker.AclInfo,
    Code.GET_ROUTEINFO_BY_TOPIC: route.TopicRouteData,
    Code.GET_BROKER_CLUSTER_INFO: route.ClusterInfo,
    Code.GET_BROKER_MEMBER_GROUP: route.GetBrokerMemberGroupResponseBody,
    Code.REGISTER_BROKER: broker.KVTable,
    Code.QUERY_DATA_VERSION: DataVersion,
    Code.GET_KVLIST_BY_NAMESPACE: broker.KVTable,
    Code.CONTROLLER_GET_REPLICA_INFO: broker.SyncStateSet,
    Code.CONTROLLER_GET_SYNC_STATE_DATA: broker.BrokerReplicasInfo,
    Code.CONTROLLER_ELECT_MASTER: broker.ElectMasterResponseBody,
}
"""The body of each response that has one, by the code of the request."""
