"""More of the golden runs' administrators, played against our desk.

As test_broker_admin_golden, for progress, resets, settings, clean-up and counters. Every response
must be that of Apache RocketMQ, except for the differences named here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from roquet.model.fastjson import JsonValue, loads
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import QueryConsumeTimeSpanBody
from roquet.remoting.codes import RequestCode as Code
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.pull import PullMessageRequestHeader
from tests.golden.admin_kit import Exchange, Play, desk_of, exchanges

RUNS = ("json", "binary")
ADDRESS = "127.0.0.1:10911"

ADMINISTRATION = {
    Code.GET_CONSUME_STATS,
    Code.QUERY_TOPIC_CONSUME_BY_WHO,
    Code.QUERY_CONSUME_TIME_SPAN,
    Code.INVOKE_BROKER_TO_RESET_OFFSET,
    Code.UPDATE_BROKER_CONFIG,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC,
    Code.VIEW_BROKER_STATS_DATA,
}

WITHOUT_EFFECT = "without effect in this version: defaultQueryMaxNum"
"""The run sets what changes nothing here, which is said; upstream says nothing."""

DELAY_TOLERANCE_MS = 1_000
"""The recorder saw a request somewhat before or after the broker looked at its clock."""


class AdminPlay(Play):
    """A run, with what administrators ask."""

    async def exchange(self, each: Exchange) -> RemotingCommand | None:
        if each.request.code not in ADMINISTRATION:
            await super().exchange(each)
            return None
        self.advance(each.ms)
        return await self.at.handle(each.request, self.at.connection)

    def make_topic(self, topic: str) -> None:
        super().make_topic(topic)
        self.at.stats.add_puts(topic, 1, 1)

    def commit_of_pull(self, header: PullMessageRequestHeader) -> None:
        super().commit_of_pull(header)
        # A pull continues after what the previous one returned.
        self.at.offsets.commit_pull(
            header.consumer_group, header.topic, header.queue_id, header.queue_offset
        )


def comparable(code: int, body: bytes) -> JsonValue:
    """What must be equal in two bodies: everything but rates, delays and the order of sets."""
    value = loads(body) if body else None
    if not isinstance(value, dict):
        return value
    value.pop("consumeTps", None)
    if code == Code.VIEW_BROKER_STATS_DATA:
        for item in value.values():
            assert isinstance(item, dict)
            for name in item:
                item[name] = None
    groups = value.get("groupList")
    if isinstance(groups, list):
        value["groupList"] = sorted(groups, key=str)
    spans = value.get("consumeTimeSpanSet")
    for span in spans if isinstance(spans, list) else ():
        assert isinstance(span, dict)
        for name in [name for name in span if name == "delayTime" or str(name).endswith("Str")]:
            span[name] = None
    return value


def compare(each: Exchange, ours: RemotingCommand, golden: RemotingCommand) -> None:
    code = each.request.code
    remark = WITHOUT_EFFECT if code == Code.UPDATE_BROKER_CONFIG else golden.remark
    assert (each.place, ours.code, ours.remark, ours.ext_fields) == (
        each.place,
        golden.code,
        remark,
        golden.ext_fields,
    )
    assert (each.place, comparable(code, ours.body)) == (
        each.place,
        comparable(code, golden.body),
    )
    if code == Code.QUERY_CONSUME_TIME_SPAN:
        compare_times(ours.body, golden.body)


def compare_times(ours: bytes, golden: bytes) -> None:
    """Delays are about those of the run; the texts of times differ by the zone only."""
    bodies = [decode_body(QueryConsumeTimeSpanBody, body) for body in (ours, golden)]
    for mine, theirs in zip(*(body.consume_time_span_set for body in bodies), strict=True):
        assert abs(mine.delay_ms - theirs.delay_ms) < DELAY_TOLERANCE_MS
        for my_text, their_text in (
            (mine.consume_timestamp_text, theirs.consume_timestamp_text),
            (mine.max_timestamp_text, theirs.max_timestamp_text),
            (mine.min_timestamp_text, theirs.min_timestamp_text),
        ):
            assert my_text is not None
            assert their_text is not None
            assert len(my_text) == len(their_text)
            assert my_text[-6:] == their_text[-6:]


@pytest.mark.parametrize("run", RUNS)
async def test_responses_match_the_run(run: str, tmp_path: Path) -> None:
    compared: Counter[int] = Counter()
    with desk_of(run, tmp_path) as at:
        play = AdminPlay(run, at)
        for each in exchanges(run, "broker"):
            ours = await play.exchange(each)
            if ours is None or each.answer is None:
                continue
            compare(each, ours, each.answer)
            compared[each.request.code] += 1
    assert compared == Counter(ADMINISTRATION)
