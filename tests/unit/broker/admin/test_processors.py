"""All processors for administrators, together."""

from __future__ import annotations

from roquet.broker.processors import admin_processors
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.processor import Action, Port, ProcessorRegistry, Resource
from tests.unit.broker.admin.codes_kit import CODES
from tests.unit.broker.admin.kit import Desk


def test_every_code_has_its_processor_on_both_ports(at: Desk) -> None:
    registry = ProcessorRegistry(*admin_processors(at.parts))
    for port in Port:
        table = registry.table(port)
        assert set(table) == CODES
        for each in table.values():
            assert each.permission.action is not Action.ANY
            assert each.permission.resource is not Resource.NONE


async def test_empty_headers_are_refused(at: Desk) -> None:
    needing = CODES - {
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    }
    for code in CODES:
        answer = await at.ask(code)
        assert (code, answer.code != ResponseCode.SUCCESS) == (code, code in needing)
        assert not (code in needing and not answer.remark)
