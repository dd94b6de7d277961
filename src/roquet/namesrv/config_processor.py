"""The requests about values and settings that a name server handles, one method per code.

The part of upstream's ``DefaultRequestProcessor`` that is not about routes. Changes are
acknowledged once they are in their files.
"""

from __future__ import annotations

from roquet.errors import ConfigError
from roquet.namesrv.config import UPDATE_REFUSED, Configuration
from roquet.namesrv.kv_config import KVConfigManager
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import (
    Action,
    Permission,
    Port,
    RequestContext,
    Resource,
    processor,
)

__all__ = ["ConfigProcessor"]

_PORTS = frozenset({Port.MAIN})
_LOOK = Permission(Action.GET, Resource.CLUSTER)
_CHANGE = Permission(Action.UPDATE, Resource.CLUSTER)


class ConfigProcessor:
    """Handles requests.

    Args:
        kv_config: Values by namespace and key.
        configuration: The settings in force.
    """

    def __init__(self, kv_config: KVConfigManager, configuration: Configuration) -> None:
        self._kv_config = kv_config
        self._configuration = configuration

    @processor(
        RequestCode.PUT_KV_CONFIG,
        header=headers.PutKVConfigRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    async def put_kv_config(
        self, context: RequestContext, header: headers.PutKVConfigRequestHeader
    ) -> RemotingCommand:
        """Set a value."""
        await self._kv_config.put(header.namespace, header.key, header.value)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.GET_KV_CONFIG,
        header=headers.KVKeyRequestHeader,
        permission=_LOOK,
        ports=_PORTS,
    )
    def get_kv_config(
        self, context: RequestContext, header: headers.KVKeyRequestHeader
    ) -> RemotingCommand:
        """One value."""
        value = self._kv_config.get(header.namespace, header.key)
        answer = headers.GetKVConfigResponseHeader(value=value)
        if value is not None:
            return context.response(ResponseCode.SUCCESS, answer)
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return context.response(ResponseCode.QUERY_NOT_FOUND, answer, remark=remark)

    @processor(
        RequestCode.DELETE_KV_CONFIG,
        header=headers.KVKeyRequestHeader,
        permission=_CHANGE,
        ports=_PORTS,
    )
    async def delete_kv_config(
        self, context: RequestContext, header: headers.KVKeyRequestHeader
    ) -> RemotingCommand:
        """Delete a value."""
        await self._kv_config.delete(header.namespace, header.key)
        return context.response(ResponseCode.SUCCESS)

    @processor(
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        header=headers.GetKVListByNamespaceRequestHeader,
        permission=_LOOK,
        ports=_PORTS,
    )
    def kv_list(
        self, context: RequestContext, header: headers.GetKVListByNamespaceRequestHeader
    ) -> RemotingCommand:
        """Values of a namespace."""
        body = self._kv_config.encoded(header.namespace)
        if body is not None:
            return context.response(ResponseCode.SUCCESS, body=body)
        remark = f"No config item, Namespace: {header.namespace}"
        return context.response(ResponseCode.QUERY_NOT_FOUND, remark=remark)

    @processor(RequestCode.UPDATE_NAMESRV_CONFIG, permission=_CHANGE, ports=_PORTS)
    async def update_config(self, context: RequestContext) -> RemotingCommand:
        """Change settings; only some may be changed."""
        try:
            await self._configuration.update(context.request.body.decode())
        except UnicodeDecodeError as error:
            raise RequestRefused("string2Properties error") from error
        except ConfigError as error:
            code = (
                ResponseCode.NO_PERMISSION
                if error.code == UPDATE_REFUSED
                else ResponseCode.INVALID_PARAMETER
            )
            words = [error.message, error.hint or ""]
            raise RequestRefused(" ".join(words).strip(), response_code=code) from error
        return context.response(ResponseCode.SUCCESS)

    @processor(RequestCode.GET_NAMESRV_CONFIG, permission=_LOOK, ports=_PORTS)
    def get_config(self, context: RequestContext) -> RemotingCommand:
        """All settings."""
        return context.response(ResponseCode.SUCCESS, body=self._configuration.text().encode())
