"""Expressions that are long, deep, odd or many, and properties that break their evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from tests.security.kit import (
    Peer,
    Scene,
    Victim,
    assert_tells_nothing,
    at_broker,
    peer_of,
    pull_fields,
    request,
    send_fields,
)

EXPRESSIONS = (
    *(
        "",
        " ",
        "a",
        "a >",
        "1",
        "TRUE",
        "()",
        "a = 1 --",
        "\x00",
        "\n",
        "a = 'x",
        "é = 1",
        "a = 1;",
    ),
    *("(" * 65_000, "(" * 100 + "a = 1" + ")" * 100, "NOT " * 16_000 + "a = 1", "-" * 60_000),
    *("a > " + "9" * 5_000, "a > 1e99999", "a BETWEEN 6 AND 3", "a > 0x" + "F" * 5_000),
    *("a IN (" + "'x'," * 16_000 + "'x')", " OR ".join(f"a{i} = 1" for i in range(5_000))),
    *("a = 1" + " AND a = 1" * 7_000, "a = '" + "x" * 65_530, "'" * 65_536, "a" * 65_536),
    *("a = 4" + " OR a = 4" * 511, "a CONTAINS '0x'" + " OR a CONTAINS '0x'" * 511),
    *("+" * 60_000, "+(" * 30_000, "a = 4.5" + " OR a = 4.5" * 511),
)

VALUES = (
    *("", "9" * 5_000, "-" + "9" * 5_000, "1e999999", "NaN", "Infinity", "0x10", "1_000", "\u0663"),
    *("0" * 30_000 + "5", "\u0660" * 10_000 + "5", "0." + "0" * 30_000 + "5"),
    *("5L", "5d", "+5", "5.", ".", " 5", "--5", "9223372036854775808", "1" + "0" * 309, "\x00"),
)


def subscription(
    topic: str, expression: str, version: int, kind: str = "SQL92"
) -> dict[str, object]:
    return {
        "topic": topic,
        "subString": expression,
        "expressionType": kind,
        "subVersion": version,
        "tagsSet": [],
        "codeSet": [],
    }


def heartbeat(group: str, subscriptions: Sequence[dict[str, object]]) -> bytes:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": subscriptions,
    }
    data = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [consumer]}
    return request(RequestCode.HEART_BEAT, {}, body=json.dumps(data).encode())


def check(expression: str) -> bytes:
    asked = {
        "clientId": "c",
        "group": "group",
        "subscriptionData": subscription("Orders", expression, 1),
    }
    return request(RequestCode.CHECK_CLIENT_CONFIG, {}, body=json.dumps(asked).encode())


def by_heartbeat(version: int) -> bytes:
    fields = pull_fields("Orders", sysFlag="0", subVersion=str(version), expressionType="SQL92")
    del fields["subscription"]
    return request(RequestCode.PULL_MESSAGE, fields)


async def told(peer: Peer, frame: bytes) -> RemotingCommand:
    answer = await peer.ask(frame)
    while not answer.is_response:  # notifications of the group
        answer = await peer.answer()
    assert_tells_nothing(answer)
    assert "Error while handling" not in (answer.remark or ""), answer.remark
    return answer


async def store_odd_values(peer: Peer) -> None:
    for value in VALUES:
        fields = send_fields("Orders", i=f"a\x01{value}\x02b\x015\x02")
        assert (await peer.ask(request(RequestCode.SEND_MESSAGE_V2, fields, body=b"x"))).code == 0


@at_broker
async def test_odd_expressions(scene: Scene) -> None:
    async with peer_of(scene.victim) as peer:
        await store_odd_values(peer)
        for version, expression in enumerate(EXPRESSIONS, 1):
            is_good = (await told(peer, check(expression))).code == ResponseCode.SUCCESS
            await told(peer, heartbeat("group", [subscription("Orders", expression, version)]))
            pulled = await told(peer, by_heartbeat(version))
            refused = {ResponseCode.FILTER_DATA_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_EXIST}
            assert (pulled.code in refused) is not is_good, expression[:40]
            if len(expression) < 60_000:
                fields = pull_fields("Orders", subscription=expression, expressionType="SQL92")
                own = await told(peer, request(RequestCode.PULL_MESSAGE, fields))
                bad = ResponseCode.SUBSCRIPTION_PARSE_FAILED
                assert (own.code == bad) is not is_good, expression[:40]
            await scene.witness.hears_more(1)
    await scene.hold()


@at_broker
async def test_odd_values_of_properties(scene: Scene) -> None:
    operators = (">", "<", "=", "<>", ">=", "<=", "CONTAINS", "STARTSWITH")
    rest = ("a BETWEEN 1 AND 9", "a IN ('5', '6')", "a IS NULL", "NOT (a > 5)", "a = b", "a < b")
    comparisons = [
        *(f"a {operator} {value}" for operator in operators for value in ("5", "5.5", "'5'")),
        *rest,
    ]
    async with peer_of(scene.victim) as peer:
        await store_odd_values(peer)
        for expression in comparisons:
            fields = pull_fields("Orders", subscription=expression, expressionType="SQL92")
            await told(peer, request(RequestCode.PULL_MESSAGE, fields))
    await scene.hold()


def crowds(rounds: int) -> Iterator[bytes]:
    """Heartbeats of groups that filter a hundred topics each, by long expressions."""
    for number in range(rounds):
        text = f"a = {number}".ljust(9_000)
        yield heartbeat(
            f"group{number}", [subscription(f"T{i}", text, number + 1) for i in range(100)]
        )


@at_broker
async def test_crowds_of_expressions(scene: Scene) -> None:
    async with peer_of(scene.victim) as peer:
        for frame in crowds(30):
            assert (await told(peer, frame)).code == ResponseCode.SUCCESS
        await scene.hold()


async def test_expressions_do_not_break_the_next_start(tmp_path: Path) -> None:
    victim = await Victim.start("broker", tmp_path)
    try:
        async with peer_of(victim) as peer:
            await store_odd_values(peer)
            for number, expression in enumerate(EXPRESSIONS):
                await told(
                    peer, heartbeat(f"group{number}", [subscription("Orders", expression, 1)])
                )
        await victim.stop()
        victim = await Victim.start("broker", tmp_path)
        async with peer_of(victim) as peer:
            good = [subscription("Orders", "b = 5", 1)]
            await told(peer, heartbeat("group", good))
            assert (await told(peer, by_heartbeat(1))).code == ResponseCode.SUCCESS
        await victim.stop()
        assert "Traceback" not in victim.log()
    finally:
        await victim.kill()
