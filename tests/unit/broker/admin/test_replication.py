"""What a master without slaves says about replication."""

from __future__ import annotations

from roquet.remoting.bodies.broker import HARuntimeInfo
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.unit.broker.admin.kit import Desk


async def test_no_slave_follows(at: Desk) -> None:
    at.put("T", 0, 2)
    status = await at.body_of(RequestCode.GET_BROKER_HA_STATUS, None, HARuntimeInfo)
    assert status == HARuntimeInfo(
        master=True, master_commit_log_max_offset=at.store.max_physical_offset
    )


async def test_a_master_keeps_no_offset_of_a_master(at: Desk) -> None:
    at.put("T", 0, 2)
    end = at.store.max_physical_offset
    answer = await at.ask_ok(RequestCode.RESET_MASTER_FLUSH_OFFSET)
    assert answer.body == b""
    assert at.store.max_physical_offset == end


async def test_no_epochs_without_a_controller(at: Desk) -> None:
    answer = await at.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
    expected = (ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
    assert (answer.code, answer.remark) == expected
