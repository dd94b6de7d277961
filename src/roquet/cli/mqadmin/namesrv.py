"""Commands about name servers: settings, key-value config, permissions of brokers."""

from __future__ import annotations

from collections.abc import Mapping

from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.java import concurrent_order
from roquet.cli.mqadmin.tool import Tool
from roquet.model.properties_text import format_properties, parse_properties
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.headers.base import decode_header

__all__ = ["COMMANDS", "delete_kv", "get_kv", "put_kv", "say_settings", "setting_body"]


def setting_body(flags: Flags) -> bytes:
    """The body that changes the setting that ``-k`` and ``-v`` name."""
    value = flags.text("v").replace("\\", "\\\\")
    return format_properties({flags.text("k"): value}).encode()


def say_settings(tool: Tool, server: str, settings: Mapping[str, str]) -> None:
    """Print the settings of a server."""
    for key in concurrent_order(settings):
        row = "%-50s=  %s\n" % (key, settings[key])
        tool.say(row, server=server, key=key, value=settings[key])


async def _get_settings(tool: Tool, _flags: Flags) -> None:
    """``getNamesrvConfig``."""
    for address in tool.name_servers:
        answer = await tool.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        tool.say(f"============{address}============\n")
        say_settings(tool, address, parse_properties(answer.body.decode("utf-8", "replace")))


async def _set_setting(tool: Tool, flags: Flags) -> None:
    """``updateNamesrvConfig``."""
    refusal: JavaFailure | None = None
    for address in tool.name_servers:
        try:
            await tool.ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, body=setting_body(flags))
        except JavaFailure as failure:
            refusal = failure
    if refusal is not None:
        raise refusal
    servers = f"[{', '.join(tool.name_servers)}]" if "n" in flags else ""
    key, value = flags.text("k"), flags.text("v")
    words = f"update name server config success!{servers}\n{key} : {value}\n"
    tool.say(words, nameServers=tool.name_servers, key=key, value=value)


# ---------------------------------------------------------------------------------------- values


async def get_kv(tool: Tool, namespace: str, key: str) -> str | None:
    """A value of the name servers' key-value config."""
    header = headers.KVKeyRequestHeader(namespace=namespace, key=key)
    answer = await tool.name_server(RequestCode.GET_KV_CONFIG, header)
    return decode_header(headers.GetKVConfigResponseHeader, answer.ext_fields).value


async def put_kv(tool: Tool, namespace: str, key: str, value: str) -> None:
    """Set a value on every name server."""
    header = headers.PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    for address in tool.name_servers:
        await tool.ask(address, RequestCode.PUT_KV_CONFIG, header)


async def delete_kv(tool: Tool, namespace: str, key: str) -> None:
    """Delete a value on every name server."""
    header = headers.KVKeyRequestHeader(namespace=namespace, key=key)
    for address in tool.name_servers:
        await tool.ask(address, RequestCode.DELETE_KV_CONFIG, header)


async def _update_kv(tool: Tool, flags: Flags) -> None:
    """``updateKvConfig``."""
    namespace, key, value = flags.text("s"), flags.text("k"), flags.text("v")
    await put_kv(tool, namespace, key, value)
    words = "create or update kv config to namespace success.\n"
    tool.say(words, namespace=namespace, key=key, value=value)


async def _delete_kv(tool: Tool, flags: Flags) -> None:
    """``deleteKvConfig``."""
    namespace, key = flags.text("s"), flags.text("k")
    await delete_kv(tool, namespace, key)
    tool.say("delete kv config from namespace success.\n", namespace=namespace, key=key)


# ----------------------------------------------------------------------------------- permissions


async def _wipe(tool: Tool, flags: Flags) -> None:
    """``wipeWritePerm``."""
    await _change_perm(tool, flags.text("b"), "wipe", RequestCode.WIPE_WRITE_PERM_OF_BROKER)


async def _add(tool: Tool, flags: Flags) -> None:
    """``addWritePerm``."""
    await _change_perm(tool, flags.text("b"), "add", RequestCode.ADD_WRITE_PERM_OF_BROKER)


async def _change_perm(tool: Tool, broker_name: str, verb: str, code: RequestCode) -> None:
    header = headers.BrokerNameRequestHeader(broker_name=broker_name)
    for address in tool.name_servers:
        words = f"{verb} write perm of broker[{broker_name}] in name server[{address}]"
        try:
            answer = await tool.ask(address, code, header)
        except JavaFailure as failure:
            tool.say(f"{words} Failed\n")
            tool.output.fail(failure)
            continue
        fields = answer.ext_fields or {}
        count = int(fields.get(f"{verb}TopicCount", "0"))
        tool.say(f"{words} OK, {count}\n", broker=broker_name, nameServer=address, topics=count)


COMMANDS = {
    "addWritePerm": _add,
    "deleteKvConfig": _delete_kv,
    "getNamesrvConfig": _get_settings,
    "updateKvConfig": _update_kv,
    "updateNamesrvConfig": _set_setting,
    "wipeWritePerm": _wipe,
}
