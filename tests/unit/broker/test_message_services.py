from __future__ import annotations

from pathlib import Path

from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from roquet.remoting.codes import RequestCode
from roquet.remoting.processor import Port, ProcessorRegistry
from roquet.store.config import BrokerRole, replace
from tests.unit.broker.processor.send_kit import SMALL, broker
from tests.unit.broker.service.manual_timers import ManualTimers
from tests.unit.broker.services_kit import services

CODES = [
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
]


def test_all_services_work_together(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        timers = ManualTimers(made.clock)
        service = services(made, timers)
        assert set(ProcessorRegistry(*service.processors).table(Port.MAIN)) == set(CODES)
        made.send("DELAY\x011\x02")
        made.send("TRAN_MSG\x01true\x02PGROUP\x01P\x02")
        service.start()
        timers.advance(32_000)
        assert made.count("T", 0) == 1
        assert made.count(TRANS_HALF_TOPIC) == 2
        service.ops.ended(1)
        service.stop()
        assert timers.pending == 0
        assert made.stored(TRANS_OP_HALF_TOPIC).body == b"1,"
        made.send("DELAY\x011\x02")
        timers.advance(60_000)
        assert made.count("T", 0) == 1
        assert made.count(SCHEDULE_TOPIC, 0) == 2


def test_a_slave_delivers_and_checks_nothing(tmp_path: Path) -> None:
    with broker(tmp_path, store_config=replace(SMALL, broker_role=BrokerRole.SLAVE)) as made:
        timers = ManualTimers(made.clock)
        service = services(made, timers)
        service.start()
        assert timers.pending == 0
        service.stop()
