"""Where Roquet intentionally responds differently from the recorded broker, each with its reason.

A difference that no entry names fails the replay, and so does an entry that a run it is meant for
no longer needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from roquet.broker.settings import BROKER_SETTINGS
from roquet.namesrv.config import KEYS_WITHOUT_EFFECT
from roquet.remoting.codes import RequestCode as Code
from roquet.remoting.codes import ResponseCode
from tests.golden.replay_compare import NOTHING, Difference

ALL = frozenset({"json", "binary", "ext"})
LONG = frozenset({"json", "binary"})
BINARY = frozenset({"binary"})
EXT = frozenset({"ext"})

_TIMER_MESSAGE = r"(store_size|born_host|properties\.(TIMER_.*|REAL_TOPIC|REAL_QID))"


@dataclass(frozen=True, slots=True)
class Intended:
    """Intended differences.

    Attributes:
        name: What to call them.
        reason: Why they are.
        runs: The runs in which they occur.
        codes: The requests that differ, or whose responses differ; empty for all.
        places: The frames, where only some of those are meant; empty for all.
        values: A pattern of the names of the values.
        holds: What else must be true of recorded and our value.
    """

    name: str
    reason: str
    runs: frozenset[str]
    values: str
    codes: frozenset[int] = frozenset()
    places: frozenset[str] = frozenset()
    holds: Callable[[object, object], bool] = field(default=lambda _recorded, _ours: True)

    def covers(self, run: str, found: Difference) -> bool:
        return (
            run in self.runs
            and (not self.codes or found.code in self.codes)
            and (not self.places or found.place in self.places)
            and re.fullmatch(self.values, found.name) is not None
            and self.holds(found.recorded, found.ours)
        )


def _codes(*codes: int) -> frozenset[int]:
    return frozenset(codes)


def _was(*recorded: object) -> Callable[[object, object], bool]:
    return lambda was, _: was in recorded


def _is(*ours: object) -> Callable[[object, object], bool]:
    return lambda _, is_: is_ in ours


def _any_of(keys: Iterable[str]) -> str:
    return rf"body\.({'|'.join(map(re.escape, sorted(keys)))})"


def _refused_by_name(_: object, ours: object) -> bool:
    return isinstance(ours, tuple) and ours[0] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def _route_is_there(recorded: object, ours: object) -> bool:
    return (
        isinstance(recorded, tuple)
        and recorded[0] == ResponseCode.TOPIC_NOT_EXIST
        and "topic: %RETRY%" in recorded[1]
        and ours == (ResponseCode.SUCCESS, None)
    )


def _same_ends(recorded: object, ours: object) -> bool:
    """Whether two bodies name the same half messages, in any order."""
    if not isinstance(recorded, bytes) or not isinstance(ours, bytes):
        return False
    return sorted(recorded.split(b",")) == sorted(ours.split(b","))


def _java_exception(recorded: object, ours: object) -> bool:
    return str(recorded).startswith("java.lang.") and isinstance(ours, str)


HEADERS = [
    Intended(
        name="codec of answers",
        reason="an answer has the header codec of its request; upstream answers in JSON",
        runs=BINARY,
        values="codec",
        holds=lambda was, is_: (was, is_) == ("JSON", "ROCKETMQ"),
    ),
    Intended(
        name="empty remarks",
        reason="a binary header cannot tell an empty remark from none",
        runs=BINARY,
        values="remark",
        codes=_codes(Code.GET_MIN_OFFSET),
        holds=lambda was, is_: (was, is_) == ("", None),
    ),
    Intended(
        name="language of the broker",
        reason="the broker says what it is written in when it asks a name server",
        runs=ALL,
        values="language",
        codes=_codes(Code.REGISTER_BROKER, Code.UNREGISTER_BROKER),
        holds=lambda was, is_: (was, is_) == ("JAVA", "PYTHON"),
    ),
]

NOT_BUILT = [
    Intended(
        name="POP",
        reason="POP is not built; its requests are refused by name",
        runs=LONG,
        values="code",
        codes=_codes(Code.SET_MESSAGE_REQUEST_MODE, Code.QUERY_ASSIGNMENT, Code.POP_MESSAGE),
        holds=_refused_by_name,
    ),
    Intended(
        name="timer messages",
        reason="the timer wheel is not built; its messages are refused as if it were switched off",
        runs=BINARY,
        values="code",
        codes=_codes(Code.SEND_MESSAGE_V2),
        holds=lambda was, is_: (
            (was, is_)
            == (
                (ResponseCode.SUCCESS, None),
                (
                    ResponseCode.SYSTEM_ERROR,
                    "accurate timer message is not enabled, timerWheelEnable is false",
                ),
            )
        ),
    ),
    Intended(
        name="properties of the timer message",
        reason="a plain message stands for it in its queue",
        runs=BINARY,
        values=rf"message\.\d+\.{_TIMER_MESSAGE}",
        places=frozenset({"binary.jsonl:368", "binary.jsonl:596"}),
    ),
    Intended(
        name="topic of the timer",
        reason="the timer wheel is not built and has no topic",
        runs=BINARY,
        values=r"body(\..*)?\.topicConfigTable\.rmq_sys_wheel_timer\..*",
        codes=_codes(Code.REGISTER_BROKER, Code.GET_ALL_TOPIC_CONFIG),
        holds=_is(NOTHING),
    ),
    Intended(
        name="topic of the timer in the list",
        reason="the timer wheel is not built and has no topic",
        runs=BINARY,
        values=r"body\.topicList\.\d+",
        codes=_codes(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        holds=lambda was, is_: (was, is_) == ("rmq_sys_wheel_timer", NOTHING),
    ),
    Intended(
        name="number of topics without that of the timer",
        reason="the timer wheel is not built and has no topic",
        runs=BINARY,
        values=r"ext\.(totalTopicNum|wipeTopicCount|addTopicCount)",
        holds=lambda was, is_: int(str(was)) == int(str(is_)) + 1,
    ),
]

BETTER = [
    Intended(
        name="words for bad requests",
        reason="what is wrong is said in words, not by the trace of an exception",
        runs=LONG,
        values="remark",
        codes=_codes(Code.SEND_MESSAGE_V2),
        holds=_java_exception,
    ),
    Intended(
        name="deleting a topic without a timer",
        reason="upstream fails with a null pointer; here the topic is deleted",
        runs=frozenset({"json"}),
        values="code",
        codes=_codes(Code.DELETE_TOPIC_IN_BROKER),
        holds=lambda was, is_: (
            "getTimerMetrics()" in str(was) and is_ == (ResponseCode.SUCCESS, None)
        ),
    ),
    Intended(
        name="settings without effect are said",
        reason="who sets what changes nothing here is told so",
        runs=LONG,
        values="remark",
        codes=_codes(Code.UPDATE_BROKER_CONFIG),
        holds=_is("without effect in this version: defaultQueryMaxNum"),
    ),
    Intended(
        name="routes of new groups are there sooner",
        reason="a retry topic is registered when its first heartbeat is handled, before the next "
        "request; upstream was still at it",
        runs=LONG,
        values="code",
        codes=_codes(Code.GET_ROUTEINFO_BY_TOPIC),
        holds=_route_is_there,
    ),
]

SETTINGS = [
    Intended(
        name="settings without effect",
        reason="only settings that do something are shown",
        runs=LONG,
        values=_any_of(BROKER_SETTINGS.without_effect.keys() | BROKER_SETTINGS.unsupported.keys()),
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_is(NOTHING),
    ),
    Intended(
        name="settings of the name server without effect",
        reason="only settings that do something are shown",
        runs=LONG,
        values=_any_of(KEYS_WITHOUT_EFFECT),
        codes=_codes(Code.GET_NAMESRV_CONFIG),
        holds=_is(NOTHING),
    ),
    Intended(
        name="settings of TLS and address servers",
        reason="they are settings here; upstream takes them from system properties",
        runs=LONG,
        values=r"body\.(tls\..*|rmqAddressServer.*)",
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="settings of hooks",
        reason="hooks are named in settings; upstream has them registered by a program",
        runs=LONG,
        values=r"body\.(sendMessageHooks|consumeMessageHooks|rpcHooks)",
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="age of archived segments",
        reason="upstream knows of no archive",
        runs=LONG,
        values=r"body\.archivedFileReservedTime",
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="address of the master",
        reason="upstream shows no setting that is null",
        runs=LONG,
        values=r"body\.haMasterAddress",
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="a store that must exist",
        reason="upstream makes a new store wherever none is",
        runs=LONG,
        values=r"body\.storeMustExist",
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="messages on disk",
        reason="upstream assumes that messages far from the end of the log are on disk",
        runs=LONG,
        values=r"body\.messageInDiskByDistance",
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="bounds of what is open",
        reason="upstream takes every connection and keeps every queue file open",
        runs=LONG,
        values=r"body\.(maxConnections|maxOpenConsumeQueueFiles)",
        codes=_codes(Code.GET_BROKER_CONFIG, Code.GET_NAMESRV_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="bounds of what slow readers hold",
        reason="upstream keeps responses for peers that do not read, without bound",
        runs=LONG,
        values=r"body\.(maxHeldBytes|slowReaderTimeoutMillis)",
        codes=_codes(Code.GET_BROKER_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="bounds of the name server's tables",
        reason="upstream's tables grow without bound",
        runs=LONG,
        values=r"body\.(maxBrokers|maxTopicRoutes)",
        codes=_codes(Code.GET_NAMESRV_CONFIG),
        holds=_was(NOTHING),
    ),
    Intended(
        name="places of the replay",
        reason="ports and directories of the test",
        runs=LONG,
        values=r"body\.(bindAddress|listenPort|namesrvAddr|storePathRootDir|storePathCommitLog|"
        r"haListenPort|kvConfigPath|configStorePath|rocketmqHome)",
        codes=_codes(Code.GET_BROKER_CONFIG, Code.GET_NAMESRV_CONFIG),
    ),
]

REGISTRATION = [
    Intended(
        name="checksum of a registration",
        reason="the checksum is of another text: topics are in another order, all of them",
        runs=ALL,
        values=r"ext\.bodyCrc32",
        codes=_codes(Code.REGISTER_BROKER),
    ),
    Intended(
        name="version of the mapping of static topics",
        reason="without static topics, their version is as old as the broker",
        runs=ALL,
        values=r"body(\..*)?\.mappingDataVersion\.timestamp",
        codes=_codes(Code.REGISTER_BROKER, Code.GET_ALL_TOPIC_CONFIG),
    ),
]

_MACHINE = (
    "commitLogDirCapacity",
    r"commitLogDiskRatio(_.*)?",
    "consumeQueueDiskRatio",
    "getFoundTps",
    "getMessageEntireTimeMax",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "putLatency99",
    "putLatency999",
    "putMessageDistributeTime",
    "putMessageEntireTimeMax",
    "putTps",
    "remainHowManyDataToFlush",
)

COUNTERS = [
    Intended(
        name="what the machine does",
        reason="rates, latencies and the room on disk are of the machine and the moment",
        runs=LONG,
        values=rf"body\.table\.({'|'.join(_MACHINE)})",
        codes=_codes(Code.GET_BROKER_RUNTIME_INFO),
    ),
    Intended(
        name="rates of the last minute",
        reason="counters are looked at every ten seconds from the start on, and upstream's broker "
        "began to look seconds before it took part",
        runs=LONG,
        values=r"body\.(topicPutTps|statsMinute\.(sum|tps|avgpt))",
        codes=_codes(Code.GET_TOPIC_STATS_INFO, Code.VIEW_BROKER_STATS_DATA),
    ),
    Intended(
        name="refused puts",
        reason="too long properties are refused before the store, which counts what it refuses",
        runs=LONG,
        values=r"body\.table\.putMessageFailedTimes",
        codes=_codes(Code.GET_BROKER_RUNTIME_INFO),
        holds=lambda was, is_: (was, is_) == ("2", "1"),
    ),
    Intended(
        name="bytes and messages put",
        reason="the timer message was stored twice, and was longer than what stands for it",
        runs=BINARY,
        values=r"body\.table\.(putMessageTimesTotal|putMessageSizeTotal|putMessageAverageSize|"
        r"commitLogMaxOffset)",
        codes=_codes(Code.GET_BROKER_RUNTIME_INFO),
    ),
]

STORED = [
    Intended(
        name="locks of queues",
        reason="who consumes a queue in order is kept over a restart; upstream forgets it",
        runs=LONG,
        values=r"table\.rebalanceLock\..*",
        holds=_was(NOTHING),
    ),
    Intended(
        name="order of what consumers return",
        reason="upstream's threads stored returns of the same moment in an order of theirs",
        runs=BINARY,
        values=r"stored\.(%RETRY%golden_retry|SCHEDULE_TOPIC_XXXX)\.0\.\d\.queue_offset",
    ),
    Intended(
        name="order of ended transactions",
        reason="upstream's threads wrote ends of the same moment down in an order of theirs",
        runs=LONG,
        values=r"stored\.RMQ_SYS_TRANS_OP_HALF_TOPIC\.0\.\d\.body",
        holds=_same_ends,
    ),
    Intended(
        name="checksums of ended transactions",
        reason="they are those of the bodies, whose order differs",
        runs=LONG,
        values=r"stored\.RMQ_SYS_TRANS_OP_HALF_TOPIC\.0\.\d\.body_crc",
    ),
    Intended(
        name="times of ended transactions",
        reason="ends are written down some time after the first of them, not when a thread wakes",
        runs=LONG,
        values=r"stored\.RMQ_SYS_TRANS_OP_HALF_TOPIC\.0\.\d\.(born|store)_timestamp_ms",
    ),
    Intended(
        name="stored timer message",
        reason="a plain message stands for it in its queue",
        runs=BINARY,
        values=rf"stored\.GoldenTopic\.3\.13\.{_TIMER_MESSAGE}",
    ),
    Intended(
        name="queue of the timer",
        reason="the timer wheel is not built and stores nothing",
        runs=BINARY,
        values=r"stored\.rmq_sys_wheel_timer\.0\.0\..*",
        holds=_is(NOTHING),
    ),
    Intended(
        name="stored topic of the timer",
        reason="the timer wheel is not built and has no topic",
        runs=BINARY,
        values=r"table\.topics\.topicConfigTable\.rmq_sys_wheel_timer\..*",
        holds=_is(NOTHING),
    ),
    Intended(
        name="delivered again after a kill",
        reason="the recorded broker was killed and delivered a delayed message again; ours stops",
        runs=EXT,
        values=r"stored\.GoldenTopic\.1\.14\..*",
        holds=_is(NOTHING),
    ),
    Intended(
        name="delivered after a kill",
        reason="the recorded broker was dead when a delayed message was due",
        runs=EXT,
        values=r"stored\.GoldenTopic\.2\.20\.store_timestamp_ms",
    ),
    Intended(
        name="tables of POP",
        reason="POP is not built and keeps nothing",
        runs=ALL,
        values=r"table\.(consumerOrderInfo|messageRequestMode)\..*",
        holds=_is(NOTHING),
    ),
    Intended(
        name="offsets of broadcast consumers",
        reason="upstream keeps them for clients of its proxy; others have their own",
        runs=LONG,
        values=r"table\.consumerOffset\.offsetTable\.GoldenTopic@golden_broadcast@broadcast\.\d",
        holds=_is(NOTHING),
    ),
    Intended(
        name="version of an empty table",
        reason="upstream makes the table of transactions later than the others",
        runs=EXT,
        values=r"table\.transactionMetrics\.dataVersion\.timestamp",
    ),
]

INTENDED = [*HEADERS, *NOT_BUILT, *BETTER, *SETTINGS, *REGISTRATION, *COUNTERS, *STORED]
