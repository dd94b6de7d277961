"""The sends of the golden runs, played against our processor and a store of its own.

The log of each run is written again, record for record: where a record came from a send, the
request goes to our processor, which must give the response of Apache RocketMQ and write a record
with the same fields at the same offset; where it came from elsewhere (a delivery, the end of a
transaction), its bytes are copied. A wrong length or a missing property shows at once, because the
next message id is then another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.format.commit_log import DispatchRequest
from roquet.model.properties import decode_properties
from roquet.remoting.codec import encode_command
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.golden.send_kit import STORES, Exchange, Replay, comparable, exchanges

TIMER_OFF = "accurate timer message is not enabled, timerWheelEnable is false"

JAVA_EXCEPTIONS = {
    "java.lang.NumberFormatException": (
        'the custom field <e> is no number. For input string: "zero"'
    ),
    'java.lang.NullPointerException: Cannot invoke "Object.hashCode()"': (
        "the custom field <b> is null"
    ),
    "java.lang.NullPointerException: Cannot read the array length": "the message body is null",
}
"""Where upstream answers with a stack trace, and what we say."""


@pytest.fixture(params=STORES)
def run(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def replay(run: str, tmp_path: Path) -> Iterator[Replay]:
    made = Replay(run, tmp_path / "store")
    try:
        yield made
    finally:
        made.broker.store.shutdown()


def sends_by_offset(run: str, records: list[DispatchRequest]) -> dict[int, Exchange]:
    """Which send wrote which record, by the message ids of responses or the unique keys."""
    first_with_key: dict[str, int] = {}
    for record in records:
        if record.unique_key:
            first_with_key.setdefault(record.unique_key, record.physical_offset)
    found: dict[int, Exchange] = {}
    for each in exchanges(run):
        offset = each.physical_offset
        if each.answer is None:
            text = (each.request.ext_fields or {})["i"]
            offset = first_with_key[decode_properties(text.encode())["UNIQ_KEY"]]
        if offset is not None:
            found[offset] = each
    return found


def send_again(replay: Replay, exchange: Exchange, physical_offset: int) -> None:
    """Send what was sent; response and record must match the run."""
    fields = exchange.request.ext_fields or {}
    answer = replay.send(exchange)
    ours = replay.our_record(physical_offset)
    golden = replay.golden_record(physical_offset)
    if exchange.request.code != RequestCode.SEND_BATCH_MESSAGE and "UNIQ_KEY" not in fields["i"]:
        made_key = ours.properties["UNIQ_KEY"]
        assert len(made_key) == len(golden.properties["UNIQ_KEY"])
        golden.properties["UNIQ_KEY"] = made_key
        assert exchange.answer is not None
        assert exchange.answer.ext_fields is not None
        exchange.answer.ext_fields["transactionId"] = made_key
    assert (exchange.place, comparable(ours)) == (exchange.place, comparable(golden))
    if exchange.answer is None:
        assert answer is None
    else:
        assert answer is not None
        assert (exchange.place, encode_command(answer)) == (
            exchange.place,
            encode_command(exchange.answer),
        )


def test_responses_and_records_match_the_run(run: str, replay: Replay) -> None:
    sends = sends_by_offset(run, replay.records)
    sent = 0
    for record in replay.records:
        offset = record.physical_offset
        if offset < replay.broker.store.max_physical_offset:
            continue  # a later message of a batch
        exchange = sends.get(offset)
        if exchange is None or exchange.is_timed:
            replay.copy(record)
        else:
            send_again(replay, exchange, offset)
            sent += 1
    assert sent > 90
    assert replay.broker.topics.select("AutoCreated") == replay.made_by_send


def test_refusals_match_the_run(run: str, replay: Replay) -> None:
    refused = 0
    for each in exchanges(run):
        golden = each.answer
        if golden is None or (golden.code == ResponseCode.SUCCESS and not each.is_timed):
            continue
        answer = replay.send(each)
        assert answer is not None
        refused += 1
        if each.is_timed:
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, TIMER_OFF)
            continue
        assert (each.place, answer.code, answer.remark, answer.ext_fields or {}) == (
            each.place,
            golden.code,
            our_remark(golden.remark, each.connection),
            golden.ext_fields or {},
        )
    assert refused >= 3
    assert replay.broker.store.max_physical_offset == 0


def our_remark(remark: str | None, connection: int) -> str | None:
    """Our remark in place of upstream's."""
    for java, ours in JAVA_EXCEPTIONS.items():
        if (remark or "").startswith(java):
            return ours
    if remark is not None and " Producer: " in remark:
        return f"{remark.rpartition(':')[0]}:{connection}"
    return remark


def test_the_client_printed_the_same_refusals() -> None:
    """The refusals match those that the Java client printed in the JSON run."""
    codes = [
        each.answer.code
        for each in exchanges("json")
        if each.answer is not None and (each.request.ext_fields or {}).get("a") == "golden_bad"
    ]
    assert codes == [29, 0, 29, 0, 0, 29, 17, 16, 1, 13, 13, 1, 1]
