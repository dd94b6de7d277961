"""Request codes, response codes, languages and versions, as tables.

Owns every number of Apache RocketMQ 5.4.0's protocol that has a name. Names are upstream's, so
that a log line or a remark can be searched for in both projects. ``docs/reference/protocol.md``
is made from these tables.

A version travels as an ordinal: upstream counts all versions that might ever exist, each with a
snapshot before it.

============ ========================================================
ordinals     versions
============ ========================================================
0 to 15      the sixteen steps of 3.0.0
16 to 45     3.0.1 to 3.0.15
46 to 85     3.1.0 to 3.2.9
86 to 211    3.3.1 to 3.9.9, where no line has a ``.0``
212 to 611   4.0.0 to 5.9.9
612          anything later
============ ========================================================
"""

from __future__ import annotations

from enum import Flag, IntEnum, auto
from typing import Self

__all__ = [
    "Handler",
    "LanguageCode",
    "RequestCode",
    "ResponseCode",
    "request_code_name",
    "response_code_name",
    "version_name",
    "version_ordinal",
]


class Handler(Flag):
    """Which kinds of process handle a request code."""

    NONE = 0
    """None: the code has a name but no handler, and is refused by name."""

    BROKER = auto()
    NAMESRV = auto()
    CLIENT = auto()
    CONTROLLER = auto()
    CONTAINER = auto()
    """A process that hosts several brokers."""

    @property
    def label(self) -> str:
        """The names in lower case, as in the docs."""
        return ", ".join(str(part.name).lower() for part in Handler if part in self) or "nobody"


_NONE = Handler.NONE
_BROKER = Handler.BROKER
_NAMESRV = Handler.NAMESRV
_CLIENT = Handler.CLIENT
_CONTROLLER = Handler.CONTROLLER
_CONTAINER = Handler.CONTAINER


class RequestCode(IntEnum):
    """The codes of requests.

    Attributes:
        handlers: Which kinds of process handle it.
        purpose: What it is for, in a few words.
    """

    handlers: Handler
    purpose: str

    def __new__(cls, code: int, handlers: Handler = Handler.NONE, purpose: str = "") -> Self:
        """Make a member that equals its code and has the rest of its row as attributes.

        The defaults are for type checkers, which take a lookup by code for a call of this.
        """
        member = int.__new__(cls, code)
        member._value_ = code
        member.handlers = handlers
        member.purpose = purpose
        return member

    @property
    def since(self) -> str:
        """The first release of Apache RocketMQ that has it; the oldest known is 4.1.0.

        Example:
            >>> RequestCode.SEND_MESSAGE.since, RequestCode.POP_MESSAGE.since
            ('4.1.0', '5.0.0')
        """
        return _SINCE.get(int(self), _OLDEST)

    # Send
    SEND_MESSAGE = 10, _BROKER, "store a message; long header names"
    SEND_MESSAGE_V2 = 310, _BROKER, "store a message; header names a to n"
    SEND_BATCH_MESSAGE = 320, _BROKER, "store the messages of one body"
    CONSUMER_SEND_MSG_BACK = 36, _BROKER, "retry a message later, or dead-letter it"
    END_TRANSACTION = 37, _BROKER, "commit or roll back a half message"
    SEND_REPLY_MESSAGE = 324, _BROKER, "reply to a request message; long header names"
    SEND_REPLY_MESSAGE_V2 = 325, _BROKER, "reply to a request message; header names a to n"
    RECALL_MESSAGE = 370, _BROKER, "cancel a timer message"

    # Pull and POP
    PULL_MESSAGE = 11, _BROKER, "read a queue, waiting if it is empty"
    LITE_PULL_MESSAGE = 361, _BROKER, "the same for lite pull consumers"
    POP_MESSAGE = 200050, _BROKER, "read messages and hide them for a while"
    ACK_MESSAGE = 200051, _BROKER, "a popped message was consumed"
    BATCH_ACK_MESSAGE = 200151, _BROKER, "popped messages were consumed"
    PEEK_MESSAGE = 200052, _BROKER, "read without taking"
    CHANGE_MESSAGE_INVISIBLETIME = 200053, _BROKER, "hide a popped message longer or shorter"
    NOTIFICATION = 200054, _BROKER, "wait until there is a message to pop"
    POLLING_INFO = 200055, _BROKER, "number of waiting pops"
    POP_ROLLBACK = 200056, _BROKER, "move POP state from the KV store to files"
    QUERY_ASSIGNMENT = 400, _BROKER, "queues of a client when the broker balances"
    SET_MESSAGE_REQUEST_MODE = 401, _BROKER, "pull or POP, for a group and topic"
    GET_ALL_MESSAGE_REQUEST_MODE = 402, _BROKER, "that table, for a slave"

    # Clients and offsets
    HEART_BEAT = 34, _BROKER, "groups and subscriptions of a client"
    UNREGISTER_CLIENT = 35, _BROKER, "a client leaves"
    CHECK_CLIENT_CONFIG = 46, _BROKER, "compile a filter expression"
    GET_CLIENT_CONFIG = 47, _NONE, "configuration of a client"
    GET_CONSUMER_LIST_BY_GROUP = 38, _BROKER, "client ids of a group"
    QUERY_CONSUMER_OFFSET = 14, _BROKER, "committed offset of a queue"
    UPDATE_CONSUMER_OFFSET = 15, _BROKER, "commit an offset"
    LOCK_BATCH_MQ = 41, _BROKER, "lock queues for orderly consumption"
    UNLOCK_BATCH_MQ = 42, _BROKER, "unlock them"
    SEARCH_OFFSET_BY_TIMESTAMP = 29, _BROKER, "queue offset at a time"
    GET_MAX_OFFSET = 30, _BROKER, "next offset of a queue"
    GET_MIN_OFFSET = 31, _BROKER, "first offset of a queue"
    GET_EARLIEST_MSG_STORETIME = 32, _BROKER, "store time of a queue's first message"
    QUERY_MESSAGE = 12, _BROKER, "messages by key"
    VIEW_MESSAGE_BY_ID = 33, _BROKER, "message by physical offset"
    CHECK_TRANSACTION_STATE = 39, _CLIENT, "outcome of a transaction"
    NOTIFY_CONSUMER_IDS_CHANGED = 40, _CLIENT, "a group changed: balance now"
    RESET_CONSUMER_CLIENT_OFFSET = 220, _CLIENT, "continue from these offsets"
    GET_CONSUMER_STATUS_FROM_CLIENT = 221, _CLIENT, "offsets as the client sees them"
    GET_CONSUMER_RUNNING_INFO = 307, _BROKER | _CLIENT, "state of a consumer; the broker asks it"
    CONSUME_MESSAGE_DIRECTLY = 309, _BROKER | _CLIENT, "consume one message; the broker asks"
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326, _CLIENT, "the reply to a request message"
    QUERY_BROKER_OFFSET = 13, _NONE, "offset of a broker"
    GET_TOPIC_CONFIG_LIST = 22, _NONE, "topics of a broker"
    GET_TOPIC_NAME_LIST = 23, _NONE, "names of topics"
    TRIGGER_DELETE_FILES = 27, _NONE, "delete expired files"
    SUSPEND_CONSUMER = 209, _NONE, "stop a consumer"
    RESUME_CONSUMER = 210, _NONE, "resume a consumer"
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211, _NONE, "offsets in a consumer"
    RESET_CONSUMER_OFFSET_IN_BROKER = 212, _NONE, "offsets in a broker"
    ADJUST_CONSUMER_THREAD_POOL = 213, _NONE, "threads of a consumer"
    WHO_CONSUME_THE_MESSAGE = 214, _NONE, "consumers of a message"
    REGISTER_FILTER_SERVER = 301, _NONE, "filter server of a broker"
    REGISTER_MESSAGE_FILTER_CLASS = 302, _NONE, "class of a filter"

    # Topics and groups of a broker
    UPDATE_AND_CREATE_TOPIC = 17, _BROKER, "create or change a topic"
    UPDATE_AND_CREATE_TOPIC_LIST = 18, _BROKER, "create or change topics"
    DELETE_TOPIC_IN_BROKER = 215, _BROKER, "drop a topic"
    GET_ALL_TOPIC_CONFIG = 21, _BROKER, "all topics"
    GET_TOPIC_CONFIG = 351, _BROKER, "one topic"
    GET_TOPIC_STATS_INFO = 202, _BROKER, "offsets and last time of each queue"
    UPDATE_AND_CREATE_STATIC_TOPIC = 513, _BROKER, "create or change a static topic"
    QUERY_TOPIC_CONSUME_BY_WHO = 300, _BROKER, "groups of a topic"
    QUERY_TOPICS_BY_CONSUMER = 343, _BROKER, "topics of a group"
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345, _BROKER, "subscription of a group to a topic"
    QUERY_CONSUME_TIME_SPAN = 303, _BROKER, "store times in the queues of a group"
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305, _BROKER, "topics that belong to the broker"
    CLEAN_UNUSED_TOPIC = 316, _BROKER, "forget queues of dropped topics"
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200, _BROKER, "create or change a group"
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225, _BROKER, "create or change groups"
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201, _BROKER, "all groups"
    GET_SUBSCRIPTIONGROUP_CONFIG = 352, _BROKER, "one group"
    DELETE_SUBSCRIPTIONGROUP = 207, _BROKER, "drop a group"
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353, _BROKER, "may a group read a topic?"

    # State of a broker
    GET_CONSUMER_CONNECTION_LIST = 203, _BROKER, "clients of a consumer group"
    GET_PRODUCER_CONNECTION_LIST = 204, _BROKER, "clients of a producer group"
    GET_ALL_PRODUCER_INFO = 328, _BROKER, "clients of all producer groups"
    GET_CONSUME_STATS = 208, _BROKER, "progress of a group"
    GET_BROKER_CONSUME_STATS = 317, _BROKER, "progress of all groups"
    VIEW_BROKER_STATS_DATA = 315, _BROKER, "one statistic: minute, hour, day"
    GET_BROKER_RUNTIME_INFO = 28, _BROKER, "runtime state of the broker"
    UPDATE_BROKER_CONFIG = 25, _BROKER | _CONTAINER, "change settings"
    GET_BROKER_CONFIG = 26, _BROKER | _CONTAINER, "all settings"
    INVOKE_BROKER_TO_RESET_OFFSET = 222, _BROKER, "move a group to a time or offset"
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223, _BROKER, "offsets as a group's clients see them"
    CLONE_GROUP_OFFSET = 314, _BROKER, "copy the offsets of a group"
    QUERY_CORRECTION_OFFSET = 308, _BROKER, "smallest offsets of other groups"
    QUERY_CONSUME_QUEUE = 321, _BROKER, "entries of a consume queue"
    CLEAN_EXPIRED_CONSUMEQUEUE = 306, _BROKER, "delete expired queue files"
    DELETE_EXPIRED_COMMITLOG = 329, _BROKER, "delete expired log files"
    RESUME_CHECK_HALF_MESSAGE = 323, _BROKER, "ask about a half message again"
    GET_ALL_CONSUMER_OFFSET = 43, _BROKER, "all committed offsets, for a slave"
    GET_ALL_DELAY_OFFSET = 45, _BROKER, "progress of delay levels, for a slave"
    GET_TIMER_CHECK_POINT = 60, _BROKER, "progress of the timer, for a slave"
    GET_TIMER_METRICS = 61, _BROKER, "timer messages by topic, for a slave"
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354, _BROKER, "compare both kinds of consume queue"
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355, _BROKER, "settings from RocksDB to JSON"
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001, _BROKER, "limit cold reads of groups"
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002, _BROKER, "lift that limit"
    GET_COLD_DATA_FLOW_CTR_INFO = 2003, _BROKER, "limits of cold reads"
    SET_COMMITLOG_READ_MODE = 2004, _BROKER, "read-ahead of the log"
    SWITCH_TIMER_ENGINE = 5001, _BROKER, "timer in files or in RocksDB"

    # Users and policies
    AUTH_CREATE_USER = 3001, _BROKER, "create a user"
    AUTH_UPDATE_USER = 3002, _BROKER, "change a user"
    AUTH_DELETE_USER = 3003, _BROKER, "drop a user"
    AUTH_GET_USER = 3004, _BROKER, "one user"
    AUTH_LIST_USER = 3005, _BROKER, "users"
    AUTH_CREATE_ACL = 3006, _BROKER, "create policies"
    AUTH_UPDATE_ACL = 3007, _BROKER, "change policies"
    AUTH_DELETE_ACL = 3008, _BROKER, "drop policies"
    AUTH_GET_ACL = 3009, _BROKER, "policies of one subject"
    AUTH_LIST_ACL = 3010, _BROKER, "policies"

    # Name server
    GET_ROUTEINFO_BY_TOPIC = 105, _NAMESRV, "brokers and queues of a topic"
    GET_BROKER_CLUSTER_INFO = 106, _NAMESRV, "clusters and their brokers"
    REGISTER_BROKER = 103, _NAMESRV, "register a broker and its topics"
    UNREGISTER_BROKER = 104, _NAMESRV, "a broker leaves"
    QUERY_DATA_VERSION = 322, _NAMESRV, "must a broker register again?"
    BROKER_HEARTBEAT = 904, _NAMESRV | _CONTROLLER, "a broker is alive"
    GET_BROKER_MEMBER_GROUP = 901, _NAMESRV, "brokers of one name"
    REGISTER_TOPIC_IN_NAMESRV = 217, _NAMESRV, "a topic's queues"
    DELETE_TOPIC_IN_NAMESRV = 216, _NAMESRV, "drop a topic's route"
    WIPE_WRITE_PERM_OF_BROKER = 205, _NAMESRV, "forbid sends to a broker"
    ADD_WRITE_PERM_OF_BROKER = 327, _NAMESRV, "allow sends to it again"
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206, _NAMESRV, "all topics"
    GET_TOPICS_BY_CLUSTER = 224, _NAMESRV, "topics of a cluster"
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304, _NAMESRV, "names of clusters and brokers"
    GET_UNIT_TOPIC_LIST = 311, _NAMESRV, "topics of a unit"
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312, _NAMESRV, "topics with subscribers in units"
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313, _NAMESRV, "those of them in no unit"
    PUT_KV_CONFIG = 100, _NAMESRV, "set a value"
    GET_KV_CONFIG = 101, _NAMESRV, "one value"
    DELETE_KV_CONFIG = 102, _NAMESRV, "drop a value"
    GET_KVLIST_BY_NAMESPACE = 219, _NAMESRV, "values of a namespace"
    UPDATE_NAMESRV_CONFIG = 318, _NAMESRV, "change settings"
    GET_NAMESRV_CONFIG = 319, _NAMESRV, "all settings"

    # Replication, controller, container
    NOTIFY_MIN_BROKER_ID_CHANGE = 905, _BROKER, "another broker of the name acts as master"
    EXCHANGE_BROKER_HA_INFO = 906, _BROKER, "replication address of the master"
    GET_BROKER_HA_STATUS = 907, _BROKER, "state of replication"
    RESET_MASTER_FLUSH_OFFSET = 908, _BROKER, "how far the master has flushed"
    GET_BROKER_EPOCH_CACHE = 1007, _BROKER, "epochs of a broker's log"
    NOTIFY_BROKER_ROLE_CHANGED = 1008, _BROKER, "the new master"
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001, _CONTROLLER, "replicas in sync changed"
    CONTROLLER_ELECT_MASTER = 1002, _CONTROLLER, "choose a master"
    CONTROLLER_REGISTER_BROKER = 1003, _CONTROLLER, "register a broker"
    CONTROLLER_GET_REPLICA_INFO = 1004, _CONTROLLER, "replicas of a broker name"
    CONTROLLER_GET_METADATA_INFO = 1005, _CONTROLLER, "leader of the controllers"
    CONTROLLER_GET_SYNC_STATE_DATA = 1006, _CONTROLLER, "replicas in sync"
    UPDATE_CONTROLLER_CONFIG = 1009, _CONTROLLER, "change settings"
    GET_CONTROLLER_CONFIG = 1010, _CONTROLLER, "all settings"
    CLEAN_BROKER_DATA = 1011, _CONTROLLER, "forget a broker"
    CONTROLLER_GET_NEXT_BROKER_ID = 1012, _CONTROLLER, "the next free broker id"
    CONTROLLER_APPLY_BROKER_ID = 1013, _CONTROLLER, "take a broker id"
    BROKER_CLOSE_CHANNEL_REQUEST = 1014, _NONE, "log entry of controllers, never on a wire"
    CHECK_NOT_ACTIVE_BROKER_REQUEST = 1015, _NONE, "log entry of controllers, never on a wire"
    GET_BROKER_LIVE_INFO_REQUEST = 1016, _NONE, "log entry of controllers, never on a wire"
    GET_SYNC_STATE_DATA_REQUEST = 1017, _NONE, "log entry of controllers, never on a wire"
    RAFT_BROKER_HEART_BEAT_EVENT_REQUEST = 1018, _NONE, "log entry of controllers, never on a wire"
    ADD_BROKER = 902, _CONTAINER, "start a broker"
    REMOVE_BROKER = 903, _CONTAINER, "stop a broker"


class ResponseCode(IntEnum):
    """The codes of responses."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29

    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500

    CONTROLLER_FENCED_MASTER_EPOCH = 2000
    CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH = 2001
    CONTROLLER_INVALID_MASTER = 2002
    CONTROLLER_INVALID_REPLICAS = 2003
    CONTROLLER_MASTER_NOT_AVAILABLE = 2004
    CONTROLLER_INVALID_REQUEST = 2005
    CONTROLLER_BROKER_NOT_ALIVE = 2006
    CONTROLLER_NOT_LEADER = 2007
    CONTROLLER_BROKER_METADATA_NOT_EXIST = 2008
    CONTROLLER_INVALID_CLEAN_BROKER_METADATA = 2009
    CONTROLLER_BROKER_NEED_TO_BE_REGISTERED = 2010
    CONTROLLER_MASTER_STILL_EXIST = 2011
    CONTROLLER_ELECT_MASTER_FAILED = 2012
    CONTROLLER_ALTER_SYNC_STATE_SET_FAILED = 2013
    CONTROLLER_BROKER_ID_INVALID = 2014
    CONTROLLER_JRAFT_INTERNAL_ERROR = 2015
    CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS = 2016

    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002

    # Never on the wire: a caller reports these if there was no response.
    RPC_UNKNOWN = -1000
    RPC_ADDR_IS_NULL = -1002
    RPC_SEND_TO_CHANNEL_FAILED = -1004
    RPC_TIME_OUT = -1006


class LanguageCode(IntEnum):
    """The language in which a peer is written."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


_OLDEST = "4.1.0"
_SINCE = {
    code: release
    for release, codes in {
        "4.3.0": (322,),
        "4.5.2": (323,),
        "4.6.0": (324, 325, 326),
        "4.9.2": (327,),
        "4.9.4": (328, 329),
        "5.0.0": (
            *(47, 60, 61, 217, 343, 345, 351, 352, 353, 361, 400, 401, 402, 513),
            *range(901, 909),
            *range(1001, 1012),
            *range(200050, 200056),
        ),
        "5.1.1": (1012, 1013),
        "5.1.2": (2001, 2002, 2003, 2004),
        "5.1.3": (200151,),
        "5.2.0": (1014, 1015, 1016, 1017, 1018),
        "5.3.0": (18, *range(3001, 3011)),
        "5.3.1": (225, 354),
        "5.3.2": (355, 370, 200056),
        "5.4.0": (5001,),
    }.items()
    for code in codes
}

_REQUEST_CODE_NAMES = {int(code): code.name for code in RequestCode}
_RESPONSE_CODE_NAMES = {int(code): code.name for code in ResponseCode}


def request_code_name(code: int) -> str:
    """The name of a request code, or the number itself if it has none.

    Example:
        >>> request_code_name(310), request_code_name(9999)
        ('SEND_MESSAGE_V2', '9999')
    """
    return _REQUEST_CODE_NAMES.get(code) or str(code)


def response_code_name(code: int) -> str:
    """The name of a response code, or the number itself if it has none."""
    return _RESPONSE_CODE_NAMES.get(code) or str(code)


def _version_names() -> tuple[str, ...]:
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", *(f"V3_0_0_BETA{n}" for n in range(1, 6))]
    for beta in range(6, 10):
        names += [f"V3_0_0_BETA{beta}_SNAPSHOT", f"V3_0_0_BETA{beta}"]
    names.append("V3_0_0_FINAL")
    releases = [f"V3_0_{patch}" for patch in range(1, 16)]
    releases += [f"V3_{minor}_{patch}" for minor in (1, 2) for patch in range(10)]
    releases += [f"V3_{minor}_{patch}" for minor in range(3, 10) for patch in range(1, 10)]
    releases += [
        f"V{major}_{minor}_{patch}"
        for major in (4, 5)
        for minor in range(10)
        for patch in range(10)
    ]
    for release in releases:
        names += [f"{release}_SNAPSHOT", release]
    return (*names, "HIGHER_VERSION")


_VERSION_NAMES = _version_names()
_VERSION_ORDINALS = {name: ordinal for ordinal, name in enumerate(_VERSION_NAMES)}


def version_name(ordinal: int) -> str:
    """The name of a version, such as ``V5_4_0``.

    Example:
        >>> version_name(493), version_name(9999)
        ('V5_4_0', 'HIGHER_VERSION')
    """
    return _VERSION_NAMES[min(max(ordinal, 0), len(_VERSION_NAMES) - 1)]


def version_ordinal(name: str) -> int:
    """The ordinal of a version; raises ``KeyError`` for a name that upstream lacks.

    Example:
        >>> version_ordinal("V5_4_0")
        493
    """
    return _VERSION_ORDINALS[name]
