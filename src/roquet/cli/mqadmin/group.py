"""Commands about consumer groups: their settings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.texts import group_fields, group_text, parse_attributes
from roquet.cli.mqadmin.tool import UNCLEAR, NoTargetGiven, Tool, broker_address
from roquet.cli.mqadmin.topic import drop_topic
from roquet.model.subscription import GroupRetryPolicy, SubscriptionGroupConfig
from roquet.model.topic import dlq_topic, retry_topic
from roquet.remoting.bodies.client import MessageRequestMode, SetMessageRequestModeRequestBody
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.group import SubscriptionGroupList, SubscriptionGroupWrapper
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import admin as headers

__all__ = ["COMMANDS"]

RETRY_PAUSE_S = 1


async def _put(tool: Tool, address: str, config: SubscriptionGroupConfig) -> None:
    body = encode_body(config)
    await tool.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    words = f"create subscription group to {address} success.\n"
    tool.say(words, group=config.group_name, broker=address)


async def _update(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``updateSubGroup``."""
    usual = SubscriptionGroupConfig()
    config = SubscriptionGroupConfig(
        group_name=flags.text("g"),
        consume_enable=flags.truth("s", default=True),
        consume_from_min_enable=flags.truth("m"),
        consume_broadcast_enable=flags.truth("d"),
        consume_message_orderly=flags.truth("o"),
        retry_queue_nums=flags.number("q", usual.retry_queue_nums),
        retry_max_times=flags.number("r", usual.retry_max_times),
        group_retry_policy=_policy(flags),
        broker_id=flags.number("i", usual.broker_id),
        which_broker_when_consume_slowly=flags.number("w", usual.which_broker_when_consume_slowly),
        notify_consumer_ids_changed_enable=flags.truth("a", default=True),
        attributes=parse_attributes(flags.text("attributes")),
    )
    if "b" in flags:
        await _put(tool, flags.text("b"), config)
    elif "c" in flags:
        for address in await tool.masters(flags.text("c")):
            try:
                await _put(tool, address, config)
            except JavaFailure as failure:
                tool.output.fail(failure)
                await tool.pause(RETRY_PAUSE_S)
    else:
        return UNCLEAR
    tool.say(group_text(config), settings=config)
    return None


def _policy(flags: Flags) -> GroupRetryPolicy:
    text = flags.get("p")
    if text is None:
        return GroupRetryPolicy()
    try:
        return msgspec.json.decode(text, type=GroupRetryPolicy)
    except msgspec.MsgspecError as error:
        raise JavaFailure("com.alibaba.fastjson2.JSONException", str(error)) from error


async def _update_list(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``updateSubGroupList``."""
    path = Path(flags.text("f"))
    if not path.exists():
        tool.say(f"the file path {flags.text('f')} does not exists\n", missing=str(path))
        return None
    configs = decode_body(list[SubscriptionGroupConfig], path.read_bytes())
    if not configs:
        return None
    body = encode_body(SubscriptionGroupList(group_config_list=configs))
    is_one = "b" in flags
    what = "group config" if is_one else "subscription group config"
    for address in [flags.text("b")] if is_one else await tool.masters(flags.text("c")):
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        await tool.ask(address, code, body=body)
        words = "success, please check the result later."
        tool.say(f"submit batch of {what} to {address} {words}\n", broker=address)
    return None if is_one else UNCLEAR


async def _delete(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``deleteSubGroup``."""
    group = flags.text("g")
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    header = headers.DeleteSubscriptionGroupRequestHeader(
        group_name=group, clean_offset=flags.truth("r")
    )
    if "b" in flags:
        address = flags.text("b")
        await tool.ask(address, code, header)
        words = f"delete subscription group [{group}] from broker [{address}] success.\n"
        tool.say(words, group=group, broker=address)
        return None
    if "c" not in flags:
        return UNCLEAR
    cluster = flags.text("c")
    for address in await tool.masters(cluster):
        await tool.ask(address, code, header)
        words = f"delete subscription group [{group}] from broker [{address}] in cluster"
        tool.say(f"{words} [{cluster}] success.\n", group=group, broker=address)
    try:
        for topic in (retry_topic(group), dlq_topic(group)):
            await drop_topic(tool, topic, cluster)
    except JavaFailure as failure:
        tool.output.fail(failure)
    return None


async def _get_config(tool: Tool, flags: Flags) -> None:
    """``getConsumerConfig``."""
    info = await tool.cluster_info()
    # A broker may create a group that is requested by name; reading must not.
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    for name, data in (info.broker_addr_table or {}).items():
        found = await tool.ask_body(SubscriptionGroupWrapper, broker_address(data), code)
        config = found.subscription_group_table.get(flags.text("g"))
        if config is None:
            continue
        clusters = (info.cluster_addr_table or {}).items()
        cluster = next((each for each, names in clusters if name in names), "null")
        line = "=" * 29
        tool.say(f"{line}{cluster}:{name}{line}\n", cluster=cluster, broker=name, settings=config)
        for key, value in group_fields(config).items():
            tool.say("%-40s=  %s\n" % (key, "" if value == "null" else value))


async def _set_mode(tool: Tool, flags: Flags) -> NoTargetGiven | None:
    """``setConsumeMode``."""
    topic, group, mode = flags.text("t"), flags.text("g"), flags.text("m")
    if mode not in MessageRequestMode.__members__:
        text = f"No enum constant org.apache.rocketmq.common.message.MessageRequestMode.{mode}"
        raise JavaFailure("java.lang.IllegalArgumentException", text)
    share = flags.number("q")
    body = encode_body(
        SetMessageRequestModeRequestBody(
            topic=topic,
            consumer_group=group,
            mode=MessageRequestMode(mode),
            pop_share_queue_nums=share,
        )
    )
    if "b" not in flags and "c" not in flags:
        return UNCLEAR
    is_one = "b" in flags
    for address in [flags.text("b")] if is_one else await tool.masters(flags.text("c")):
        try:
            await tool.ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
        except JavaFailure as failure:
            if is_one:
                raise
            tool.output.fail(failure)
            await tool.pause(RETRY_PAUSE_S)
        else:
            tool.say(f"set consume mode to {address} success.\n", broker=address)
    words = f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]"
    tool.say(words, topic=topic, group=group, mode=mode, popShareQueueNum=share)
    return None


COMMANDS = {
    "deleteSubGroup": _delete,
    "getConsumerConfig": _get_config,
    "setConsumeMode": _set_mode,
    "updateSubGroup": _update,
    "updateSubGroupList": _update_list,
}
