"""Asks the brokers whether they can parse an expression, before consuming with it.

Brokers accept any subscription in a heartbeat and refuse the pulls if they cannot parse it. So it
is checked first (CHECK_CLIENT_CONFIG).
"""

from __future__ import annotations

import logging

from roquet.client.instance import ClientInstance
from roquet.errors import BadExpression, BrokerRefused, RoquetError
from roquet.model.subscription import EXPRESSION_TYPE_TAG, SubscriptionData
from roquet.remoting.bodies.client import CheckClientRequestBody
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.codes import RequestCode, ResponseCode

__all__ = ["check_expression"]

log = logging.getLogger(__name__)

_UNREADABLE = frozenset({ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SYSTEM_ERROR})


async def check_expression(
    client: ClientInstance, group: str, subscription: SubscriptionData
) -> None:
    """Have the brokers of a topic check an expression other than tags.

    Unreachable brokers are skipped and logged.

    Args:
        client: The client.
        group: The group on the wire.
        subscription: The topic on the wire and the expression.

    Raises:
        BadExpression: A broker cannot parse it.
    """
    if subscription.expression_type == EXPRESSION_TYPE_TAG or subscription.topic is None:
        return
    body = encode_body(
        CheckClientRequestBody(
            client_id=client.client_id, group=group, subscription_data=subscription
        )
    )
    try:
        route = await client.routes.route(subscription.topic)
        for name in sorted(route.brokers):
            address = client.routes.broker_address(name)
            if address is not None:
                await client.ask(address, RequestCode.CHECK_CLIENT_CONFIG, body=body)
    except BrokerRefused as error:
        if error.response_code in _UNREADABLE:
            raise BadExpression(
                f"The subscription to {client.unwrap(subscription.topic)} cannot be used",
                detail=f"{subscription.sub_string}: {error.remark or error.detail}",
                hint="Check the condition; brokers must allow SQL92 (enablePropertyFilter=true).",
            ) from error
        log.warning("%s: %s (%s)", group, error.message, error.detail)
    except RoquetError as error:
        log.warning("%s: an expression was not checked: %s", group, error.message)
