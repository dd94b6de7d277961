"""Messages that are to be called back before their time of delivery: RECALL_MESSAGE.

Upstream's RecallMessageProcessor. It writes a message that the timer takes for a deletion. This
broker has no timer, so it answers as upstream does without ``recallMessageEnable``, which is
upstream's default: no message that could be called back is ever taken.
"""

from __future__ import annotations

from roquet.broker.config import BrokerConfig
from roquet.model import properties as prop
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.send import RecallMessageRequestHeader
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Answer,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["RecallMessageProcessor"]


class RecallMessageProcessor:
    """Refuses to call messages back.

    Args:
        config: What the broker says of itself.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    @processor(
        RequestCode.RECALL_MESSAGE,
        header=RecallMessageRequestHeader,
        permission=Permission(Action.PUB, Resource.TOPIC),
        ports=ALL_PORTS,
    )
    def recall(self, context: RequestContext, header: RecallMessageRequestHeader) -> Answer:
        """Refuse, in upstream's words."""
        del header
        answer = context.response(
            ResponseCode.NO_PERMISSION, remark="recall failed, operation is forbidden"
        )
        answer.ext_fields = {prop.MSG_REGION: self._config.region_id}
        return answer
