"""Changes of settings at run time.

The part of upstream's AdminBrokerProcessor behind ``mqadmin updateBrokerConfig``. Upstream accepts
any setting but three; here only listed ones may change, see
:mod:`roquet.broker.manager.dynamic_settings`. Everything else is refused with the code that
upstream has for those three, and nothing changes; the remark says more than upstream's where
upstream would have accepted the setting.
"""

from __future__ import annotations

import logging

from roquet.broker.components import BrokerComponents
from roquet.broker.manager.dynamic_settings import BLACK_LIST, NotDynamic
from roquet.errors import ConfigError
from roquet.model.properties_text import parse_properties
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    ALL_PORTS,
    Action,
    Permission,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["ConfigUpdateAdmin"]

log = logging.getLogger(__name__)

SETTINGS_BODY_BYTES_MAX = 64 << 10
"""All settings of a broker together are about ten thousand bytes."""

REFUSED = "Can not update config in black list."


class ConfigUpdateAdmin:
    """Changes settings.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._settings = components.settings
        self._topics = components.topics
        self._clock = components.clock
        components.settings.changed.append(self._forget_conclusions)

    @processor(
        RequestCode.UPDATE_BROKER_CONFIG,
        permission=Permission(Action.UPDATE, Resource.CLUSTER),
        ports=ALL_PORTS,
    )
    async def update_config(self, context: RequestContext) -> RemotingCommand:
        """Change settings: all of the body or none; an empty body changes nothing."""
        asked = _settings_of(context.request.body)
        try:
            made, without_effect = await self._settings.update(asked)
        except NotDynamic as error:
            remark = REFUSED if BLACK_LIST & asked.keys() else f"{REFUSED} {error.message}"
            raise RequestRefused(remark, response_code=ResponseCode.NO_PERMISSION) from error
        except ConfigError as error:
            remark = f"{error.message} {error.detail or ''}".strip()
            raise RequestRefused(remark, response_code=ResponseCode.INVALID_PARAMETER) from error
        if made:
            log.info("%s changed %s", context.connection.remote_address, ", ".join(sorted(made)))
        if not without_effect:
            return context.response(ResponseCode.SUCCESS)
        remark = f"without effect in this version: {', '.join(sorted(without_effect))}"
        return context.response(ResponseCode.SUCCESS, remark=remark)

    def _forget_conclusions(self, keys: frozenset[str]) -> None:
        """Invalidate everything that is derived from settings, after every change.

        That is what also depends on topics: the processors' plans, the hot path, and the name
        servers, which learn a new ``brokerPermission`` only with a new version of the topics.
        """
        if "brokerPermission" in keys:
            self._topics.data_version.counter += 1
            self._topics.data_version.timestamp_ms = self._clock.now_ms()
        self._topics.tell_changed()


def _settings_of(body: bytes) -> dict[str, str]:
    if len(body) > SETTINGS_BODY_BYTES_MAX:
        raise RequestRefused(
            f"settings of {len(body)} bytes, the limit is {SETTINGS_BODY_BYTES_MAX}",
            response_code=ResponseCode.INVALID_PARAMETER,
        )
    try:
        return parse_properties(body.decode())
    except (UnicodeDecodeError, ConfigError) as error:
        raise RequestRefused("string2Properties error") from error
