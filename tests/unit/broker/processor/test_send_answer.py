from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.processor.send_answer import SendAnswers
from roquet.model.host import Host
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import create_request
from roquet.runtime.clock import ManualClock
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import AppendResult, PutMessageResult, PutMessageStatus
from tests.unit.broker.components_kit import components_of
from tests.unit.broker.processor.send_kit import SMALL

REQUEST = create_request(310, opaque=77)
APPENDED = AppendResult(4096, 300, 1, 9, (4096,))
FIELDS = {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 4194304B, msg properties length limit 32KB."
)


class NumberedStore(DefaultMessageStore):
    """A store whose disk is fuller at every query."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, SMALL)
        self.asked = 0

    def runtime_info(self) -> dict[str, str]:
        self.asked += 1
        ratio = str(self.asked / 10)
        return {"commitLogDiskRatio": ratio, "consumeQueueDiskRatio": ratio}


def answers(root: Path, broker_ip: str = "127.0.0.1") -> SendAnswers:
    config = BrokerConfig(broker_ip1=broker_ip)
    return SendAnswers(components_of(config, NumberedStore(root), ManualClock()))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutMessageStatus.PUT_OK, ResponseCode.SUCCESS),
        (PutMessageStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (PutMessageStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
    ],
)
def test_a_stored_message_has_an_offset(
    status: PutMessageStatus, code: int, tmp_path: Path
) -> None:
    answer = answers(tmp_path).of(REQUEST, PutMessageResult(status, APPENDED), 3, "KEY")
    assert (answer.code, answer.remark, answer.opaque, answer.flag) == (code, None, 77, 1)
    assert answer.ext_fields == {
        "queueId": "3",
        "transactionId": "KEY",
        "msgId": "7F00000100002A9F0000000000001000",
        "queueOffset": "9",
        **FIELDS,
    }


REFUSALS = {
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED: (
        1,
        "create mapped file failed, server is busy or broken.",
    ),
    PutMessageStatus.MESSAGE_ILLEGAL: (13, ILLEGAL),
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: (13, ILLEGAL),
    PutMessageStatus.SERVICE_NOT_AVAILABLE: (
        14,
        "service not available now. It may be caused by one of the following reasons: the broker's "
        "disk is full [CL:  0.10 CQ:  0.10 INDEX:  0.10], messages are put to the slave, message "
        "store has been shut down, etc.",
    ),
    PutMessageStatus.OS_PAGE_CACHE_BUSY: (
        2,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (1, "in-sync replicas not enough"),
    PutMessageStatus.UNKNOWN_ERROR: (1, "UNKNOWN_ERROR"),
}


@pytest.mark.parametrize("status", [each for each in PutMessageStatus if each in REFUSALS])
def test_a_message_that_is_not_stored_has_a_reason(
    status: PutMessageStatus, tmp_path: Path
) -> None:
    answer = answers(tmp_path).of(REQUEST, PutMessageResult(status), 3, "KEY")
    assert (answer.code, answer.remark) == REFUSALS[status]
    assert answer.ext_fields == FIELDS


def test_every_status_has_a_response() -> None:
    stored = {each for each in PutMessageStatus if PutMessageResult(each).is_stored}
    assert stored | REFUSALS.keys() == set(PutMessageStatus)


def test_the_disk_usage_is_not_queried_for_every_message(tmp_path: Path) -> None:
    clock = ManualClock()
    store = NumberedStore(tmp_path)
    made = SendAnswers(components_of(BrokerConfig(), store, clock))
    status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    first = made.refusal(status)
    assert made.refusal(status) == first
    clock.advance(999)
    assert made.refusal(status) == first
    clock.advance(1)
    assert "CL:  0.20" in made.refusal(status).remark
    assert store.asked == 2


def test_an_ipv6_address_makes_longer_ids(tmp_path: Path) -> None:
    host = Host.parse("[::1]:10911")
    appended = AppendResult(0, 300, 1, 9, (0, 255))
    answer = answers(tmp_path, "::1").of(
        REQUEST, PutMessageResult(PutMessageStatus.PUT_OK, appended), 0, None
    )
    ids = (answer.ext_fields or {})["msgId"].split(",")
    assert [len(each) for each in ids] == [56, 56]
    assert ",".join(ids) == appended.message_id(host)
