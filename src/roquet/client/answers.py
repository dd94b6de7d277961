"""From a response that is not what was hoped for to a typed error.

Owns the choice of the class and the hint. Apache RocketMQ's producer tries another broker after
any of :data:`RETRY_RESPONSE_CODES`.
"""

from __future__ import annotations

from roquet.errors import BrokerBusy, BrokerRefused, PermissionRefused
from roquet.remoting.codes import ResponseCode, request_code_name, response_code_name
from roquet.remoting.command import RemotingCommand

__all__ = ["RETRY_RESPONSE_CODES", "SUCCESS_ONLY", "refused"]

SUCCESS_ONLY = frozenset({int(ResponseCode.SUCCESS)})
"""What is accepted as an answer unless a caller says otherwise."""

RETRY_RESPONSE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers to a send after which another broker is tried."""

_BUSY = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.POLLING_FULL,
        ResponseCode.GO_AWAY,
    }
)

_HINTS = {
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "The server does not know this request: it may be of "
    "an older version, or a broker where a name server is meant.",
    ResponseCode.SYSTEM_BUSY: "The broker has too much to do; try again later, or send less.",
    ResponseCode.SERVICE_NOT_AVAILABLE: "The broker cannot write: its disk may be full, or it is "
    "a slave.",
    ResponseCode.NO_PERMISSION: "Look at the permissions of the broker, the topic and the keys.",
    ResponseCode.TOPIC_NOT_EXIST: "Create the topic, or let the broker create topics by itself.",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "Create the group, or let the broker create groups "
    "by itself.",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "The filter expression cannot be read.",
    ResponseCode.MESSAGE_ILLEGAL: "The body or the properties may be too long.",
}


def refused(response: RemotingCommand, request_code: int, address: str) -> BrokerRefused:
    """The error of an answer that says no.

    Args:
        response: The answer.
        request_code: What was asked.
        address: Who answered.
    """
    kind: type[BrokerRefused] = BrokerRefused
    if response.code in _BUSY:
        kind = BrokerBusy
    elif response.code == ResponseCode.NO_PERMISSION:
        kind = PermissionRefused
    remark = response.remark or ""
    return kind(
        f"{address} refused {request_code_name(request_code)}",
        response_code=response.code,
        remark=remark,
        detail=f"{response_code_name(response.code)} ({response.code}): {remark or 'no remark'}",
        hint=_HINTS.get(ResponseCode(response.code)) if response.code in _KNOWN else None,
    )


_KNOWN = frozenset(int(each) for each in ResponseCode)
