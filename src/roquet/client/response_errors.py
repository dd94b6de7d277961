"""Maps error responses to typed errors.

Chooses the class and the hint. Apache RocketMQ's producer tries another broker after
any of :data:`RETRY_RESPONSE_CODES`.
"""

from __future__ import annotations

from roquet.errors import BrokerBusy, BrokerRefused, PermissionRefused
from roquet.remoting.codes import ResponseCode, request_code_name, response_code_name
from roquet.remoting.command import RemotingCommand

__all__ = ["RETRY_RESPONSE_CODES", "SUCCESS_ONLY", "refused"]

SUCCESS_ONLY = frozenset({int(ResponseCode.SUCCESS)})
"""The response codes that are accepted by default."""

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
"""Response codes of a send after which another broker is tried."""

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
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "The server does not know this request: it may run "
    "an older version, or be a broker instead of a name server.",
    ResponseCode.SYSTEM_BUSY: "The broker is overloaded; retry later, or send less.",
    ResponseCode.SERVICE_NOT_AVAILABLE: "The broker cannot write: its disk may be full, or it is "
    "a slave.",
    ResponseCode.NO_PERMISSION: "Check the permissions of the broker, the topic and the keys.",
    ResponseCode.TOPIC_NOT_EXIST: "Create the topic, or let the broker create topics itself.",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "Create the group, or let the broker create groups "
    "itself.",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "The filter expression cannot be parsed.",
    ResponseCode.MESSAGE_ILLEGAL: "The body or the properties may be too long.",
}


def refused(response: RemotingCommand, request_code: int, address: str) -> BrokerRefused:
    """Return the error for an error response.

    Args:
        response: The response.
        request_code: The code of the request.
        address: The server that responded.
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
