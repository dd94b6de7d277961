"""Failures as upstream's tool prints them, which are Java's exceptions.

Owns :class:`JavaFailure` and the choice of the exception: upstream throws a fixed one for each
refused request code. Everything but the stack is printed.
"""

from __future__ import annotations

from roquet.cli.mqadmin.java import BadNumber
from roquet.errors import (
    BrokerRefused,
    ConnectFailed,
    RequestTimeout,
    RoquetError,
    SendFailed,
)
from roquet.remoting.codes import RequestCode

__all__ = [
    "BROKER_EXCEPTION",
    "CLIENT_EXCEPTION",
    "SEE_HELP",
    "JavaFailure",
    "client_failure",
    "failure_of",
    "refusal_of",
    "with_url",
]

CLIENT_EXCEPTION = "org.apache.rocketmq.client.exception.MQClientException"
BROKER_EXCEPTION = "org.apache.rocketmq.client.exception.MQBrokerException"
REMOTING = "org.apache.rocketmq.remoting.exception."

MORE = "\nFor more information, please visit the url, "
HELP_URL = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
SEE_HELP = f"\nSee {HELP_URL} for further details."

NAMES_BROKER = frozenset(
    {
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)
"""Requests whose refusal is an MQBrokerException that names the broker."""

BROKERS_OWN = frozenset(
    {
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.POP_ROLLBACK,
        RequestCode.SET_COMMITLOG_READ_MODE,
        RequestCode.SWITCH_TIMER_ENGINE,
    }
)
"""The same without the name. All others are an MQClientException."""


class JavaFailure(Exception):
    """An exception as upstream's tool would print it.

    Attributes:
        java_class: The class of the exception.
        text: Its message.
        code: The response code; -1 for none.
        remark: The remark of the server.
        cause: Its cause.
    """

    def __init__(
        self,
        java_class: str,
        text: str | None,
        *,
        code: int = -1,
        remark: str = "",
        cause: JavaFailure | None = None,
    ) -> None:
        super().__init__(text)
        self.java_class = java_class
        self.text = text
        self.code = code
        self.remark = remark
        self.cause = cause

    @property
    def is_clients(self) -> bool:
        """Whether it is an MQClientException."""
        return self.java_class == CLIENT_EXCEPTION

    def __str__(self) -> str:
        head = self.java_class if self.text is None else f"{self.java_class}: {self.text}"
        return head if self.cause is None else f"{head}\nCaused by: {self.cause}"


def with_url(text: str) -> str:
    """A text with the address of upstream's explanations, unless it has it already."""
    return text if "\nSee " in text else f"{text}{MORE}{HELP_URL}"


def client_failure(text: str, code: int | None = None) -> JavaFailure:
    """A failure detected by the client itself."""
    if code is None:
        return JavaFailure(CLIENT_EXCEPTION, with_url(text), remark=text)
    whole = with_url(f"CODE: {code}  DESC: {text}")
    return JavaFailure(CLIENT_EXCEPTION, whole, code=code, remark=text)


def refusal_of(
    request_code: int, response_code: int, remark: str | None, address: str
) -> JavaFailure:
    """A server's refusal."""
    words = "null" if remark is None else remark
    if request_code not in NAMES_BROKER | BROKERS_OWN:
        return client_failure(words, response_code)
    suffix = f" BROKER: {address}" if request_code in NAMES_BROKER else ""
    whole = with_url(f"CODE: {response_code}  DESC: {words}{suffix}")
    return JavaFailure(BROKER_EXCEPTION, whole, code=response_code, remark=words)


def failure_of(error: Exception, address: str = "null") -> JavaFailure:
    """Any other error in upstream's words, if there are any."""
    match error:
        case JavaFailure():
            return error
        case BrokerRefused():
            return client_failure(error.remark, error.response_code)
        case ConnectFailed():
            return JavaFailure(
                f"{REMOTING}RemotingConnectException", f"connect to {address} failed"
            )
        case SendFailed():
            text = f"send request to <{address}> failed"
            return JavaFailure(f"{REMOTING}RemotingSendRequestException", text)
        case RequestTimeout():
            text = f"wait response on the channel <{address}> timeout"
            return JavaFailure(f"{REMOTING}RemotingTimeoutException", text)
        case RoquetError():
            detail = f" ({error.detail})" if error.detail else ""
            return client_failure(f"{error.message}{detail}")
        case BadNumber():
            return JavaFailure("java.lang.NumberFormatException", str(error))
        case OSError():
            return JavaFailure("java.io.IOException", str(error))
        case _:
            raise error
