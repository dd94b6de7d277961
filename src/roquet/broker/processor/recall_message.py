"""Recall of messages before their delivery time: RECALL_MESSAGE.

Upstream's RecallMessageProcessor. It writes a message that the timer treats as a deletion. This
broker has no timer, so it responds as upstream does without ``recallMessageEnable``, which is
upstream's default: it never accepts a message that could be recalled.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.model import properties as prop
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.send import RecallMessageRequestHeader
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    Response,
    processor,
)
from roquet.remoting.turn_scheduler import RequestClass

__all__ = ["RecallMessageProcessor"]


class RecallMessageProcessor:
    """Refuses to recall messages.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._config = components.config

    @processor(
        RequestCode.RECALL_MESSAGE,
        header=RecallMessageRequestHeader,
        permission=Permission(Action.PUB, Resource.TOPIC),
        ports=ALL_PORTS,
        request_class=RequestClass.SEND,
    )
    def recall(self, context: RequestContext, header: RecallMessageRequestHeader) -> Response:
        """Refuse, in upstream's words."""
        del header
        answer = context.response(
            ResponseCode.NO_PERMISSION, remark="recall failed, operation is forbidden"
        )
        answer.ext_fields = {prop.MSG_REGION: self._config.region_id}
        return answer
