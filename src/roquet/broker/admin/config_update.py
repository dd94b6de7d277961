"""Changes of settings while the broker runs.

The part of upstream's AdminBrokerProcessor behind ``mqadmin updateBrokerConfig``. Upstream takes
any setting but three; here only those of a list may change, see
:mod:`roquet.broker.manager.dynamic_settings`. Everything else is refused with the code that
upstream has for those three, and nothing changes; the remark says more than upstream's where
upstream would have taken the setting.
"""

from __future__ import annotations

import logging

from roquet.broker.manager.dynamic_settings import BLACK_LIST, DynamicSettings, NotDynamic
from roquet.broker.manager.topic_config import TopicConfigManager
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
from roquet.runtime.clock import Clock

__all__ = ["ConfigUpdateAdmin", "forget_old_settings"]

log = logging.getLogger(__name__)

SETTINGS_BODY_BYTES_MAX = 64 << 10
"""All settings of a broker are some ten thousand bytes."""

REFUSED = "Can not update config in black list."


class ConfigUpdateAdmin:
    """Changes settings.

    Args:
        settings: What may be changed.
    """

    def __init__(self, *, settings: DynamicSettings) -> None:
        self._settings = settings

    @processor(
        RequestCode.UPDATE_BROKER_CONFIG,
        permission=Permission(Action.UPDATE, Resource.CLUSTER),
        ports=ALL_PORTS,
    )
    def update_config(self, context: RequestContext) -> RemotingCommand:
        """Change settings, all of the body or none; nothing happens without a body."""
        asked = _settings_of(context.request.body)
        try:
            without_effect = self._settings.update(asked)
        except NotDynamic as error:
            remark = REFUSED if BLACK_LIST & asked.keys() else f"{REFUSED} {error.message}"
            raise RequestRefused(remark, response_code=ResponseCode.NO_PERMISSION) from error
        except ConfigError as error:
            remark = f"{error.message} {error.detail or ''}".strip()
            raise RequestRefused(remark, response_code=ResponseCode.INVALID_PARAMETER) from error
        if asked:
            log.info("%s changed %s", context.connection.remote_address, ", ".join(sorted(asked)))
        if not without_effect:
            return context.response(ResponseCode.SUCCESS)
        remark = f"without effect in this version: {', '.join(sorted(without_effect))}"
        return context.response(ResponseCode.SUCCESS, remark=remark)


def _settings_of(body: bytes) -> dict[str, str]:
    if len(body) > SETTINGS_BODY_BYTES_MAX:
        raise RequestRefused(
            f"settings of {len(body)} bytes, more than {SETTINGS_BODY_BYTES_MAX} are not read",
            response_code=ResponseCode.INVALID_PARAMETER,
        )
    try:
        return parse_properties(body.decode())
    except (UnicodeDecodeError, ConfigError) as error:
        raise RequestRefused("string2Properties error") from error


def forget_old_settings(
    settings: DynamicSettings, *, topics: TopicConfigManager, clock: Clock
) -> None:
    """Have those who keep conclusions from settings draw them anew after every change.

    They are the ones who do so when topics change: the processors' plans, the compiled lane and
    the name servers, which learn a new ``brokerPermission`` only with a new version of the topics.
    """

    def forget(keys: frozenset[str]) -> None:
        if "brokerPermission" in keys:
            topics.data_version.counter += 1
            topics.data_version.timestamp_ms = clock.now_ms()
        for listener in topics.changed:
            listener()

    settings.changed.append(forget)
