"""All that answers administrators, together."""

from __future__ import annotations

import msgspec

from roquet.broker.admin.processors import AdminParts, admin_processors
from roquet.broker.manager.delay_offset import DelayOffsetManager
from roquet.broker.manager.dynamic_settings import DynamicSettings
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.processor import Action, Port, ProcessorRegistry, Resource
from roquet.runtime.files import Files
from tests.unit.broker.admin.clients_kit import ADDRESS
from tests.unit.broker.admin.kit import Desk

CODES = {
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.RESET_MASTER_FLUSH_OFFSET,
    RequestCode.GET_BROKER_EPOCH_CACHE,
}


def parts_of(at: Desk) -> AdminParts:
    return AdminParts(
        config=at.config,
        store=at.store,
        topics=at.topics,
        groups=at.groups,
        consumers=at.consumers,
        filters=at.filters,
        offsets=at.offsets,
        settings=DynamicSettings.at(at.config, at.store.config, Files(), at.clock),
        stats=BrokerStats(at.config.cluster_name, at.clock),
        flow=at.flow,
        clock=at.clock,
        address=lambda: ADDRESS,
    )


def test_every_code_has_its_processor_on_both_ports(at: Desk) -> None:
    registry = ProcessorRegistry(*admin_processors(parts_of(at)))
    for port in Port:
        assert set(registry.codes(port)) == CODES
    for each in registry.registrations():
        assert each.permission.action is not Action.ANY
        assert each.permission.resource is not Resource.NONE


def test_delay_offsets_are_handed_out_where_something_is_delayed(at: Desk) -> None:
    table = DelayOffsetManager.at(at.config, Files(), at.clock, flush=lambda: 0)
    parts = msgspec.structs.replace(parts_of(at), delay_offsets=table)
    codes = set(ProcessorRegistry(*admin_processors(parts)).codes())
    assert codes - CODES == {RequestCode.GET_ALL_DELAY_OFFSET}


async def test_headers_that_say_nothing_are_refused(at: Desk) -> None:
    for source in admin_processors(parts_of(at)):
        at.registry.add(source)
    needing = CODES - {
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
    }
    for code in CODES:
        answer = await at.ask(code)
        assert (code, answer.code != ResponseCode.SUCCESS) == (code, code in needing)
        assert not (code in needing and not answer.remark)
