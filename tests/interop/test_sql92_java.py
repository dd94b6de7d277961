"""Expressions have the same value, or are refused with the same message, as in Apache RocketMQ."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest

from roquet.filter.bloom import BitsArray, BloomFilter
from roquet.filter.sql92 import Sql92Error, Sql92EvaluationError, compile_sql92
from roquet.filter.sql92.errors import MESSAGE_CHARACTERS_MAX
from tests.interop import javabuild
from tests.interop.javaprocess import QUICK_JVM
from tests.interop.sql92_cases import VALUES, CaseMaker
from tests.interop.sql92_rare import RARE, compared_operands

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

EXPRESSIONS = 12_000
PROPERTY_SETS = 4
JAVA_TIMEOUT_S = 240

_SCIENTIFIC = re.compile(r"[0-9]\.[0-9]+E-?[0-9]+")

Json: TypeAlias = dict[str, Any]
Ask: TypeAlias = Callable[[Sequence[Json]], list[Json]]


@pytest.fixture(scope="module")
def ask_java() -> Ask:
    """Sends everything to one virtual machine at once."""
    try:
        toolkit = javabuild.build(javabuild.HERE / "javafilter")
    except javabuild.OracleMissingError as error:
        if javabuild.is_required():
            pytest.fail(f"CI has Java and Maven, so the oracle must build: {error}")
        pytest.skip(f"Apache RocketMQ's filter cannot be run here: {error}")

    def ask(requests: Sequence[Json]) -> list[Json]:
        done = subprocess.run(
            [toolkit.java, *QUICK_JVM, "-cp", toolkit.classpath, "roquet.filter.Main"],
            input="".join(f"{json.dumps(request)}\n" for request in requests),
            capture_output=True,
            encoding="utf-8",
            timeout=JAVA_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answers = [json.loads(line) for line in done.stdout.split("\n") if line]
        assert len(answers) == len(requests)
        return answers

    return ask


def _answer(request: Json) -> Json:
    """What Roquet makes of a request, in the words of the Java program."""
    try:
        expression = compile_sql92(request["expression"])
    except Sql92Error as error:
        return {"refused": error.message}
    values: list[bool | str | None] = []
    for properties in request["properties"]:
        try:
            values.append(expression.evaluate(properties))
        except Sql92EvaluationError:
            values.append("error")
    return {"values": values}


@pytest.mark.parametrize("seed", [int(os.environ.get("ROQUET_SQL92_SEED", "92"))])
def test_generated_expressions_evaluate_alike(ask_java: Ask, seed: int) -> None:
    maker = CaseMaker(random.Random(seed))
    requests: list[Json] = [
        {
            "expression": maker.expression(),
            "properties": [maker.properties() for _ in range(PROPERTY_SETS)],
        }
        for _ in range(EXPRESSIONS)
    ]
    answers = ask_java(requests)
    _check_alike(requests, answers)
    _check_variety(answers)


def test_rare_expressions_evaluate_alike(ask_java: Ask) -> None:
    requests: list[Json] = [
        {"expression": text, "properties": [{}, {"a": "5", "b": "true"}, {"a": "abc", "c": "5"}]}
        for text in RARE
    ]
    _check_alike(requests, ask_java(requests))


def test_every_two_kinds_of_values_are_compared_alike(ask_java: Ask) -> None:
    values: list[Json] = [{"a": value, "b": other} for value in VALUES for other in ("5", "-0.0")]
    requests: list[Json] = [
        {"expression": text, "properties": values} for text in compared_operands()
    ]
    answers = ask_java(requests)
    _check_alike(requests, answers)
    assert any("java.lang.ClassCastException" in answer.get("refused", "") for answer in answers)


def _check_alike(requests: Sequence[Json], answers: Sequence[Json]) -> None:
    different = [
        (request["expression"], java, roquet)
        for request, java in zip(requests, answers, strict=True)
        if _comparable(roquet := _answer(request)) != _comparable(java)
    ]
    assert not different, f"{len(different)} differ, the first: {different[0]}"


def _comparable(answer: Json) -> Json:
    """A result whose message is cut like ours, with numbers as printed by Java 19.

    Earlier versions print more digits than it takes to distinguish some numbers from their
    neighbours.
    """
    if "refused" not in answer:
        return answer
    message = answer["refused"][:MESSAGE_CHARACTERS_MAX]
    return {"refused": _SCIENTIFIC.sub(lambda match: repr(float(match[0])), message)}


def _check_variety(answers: Sequence[Json]) -> None:
    """A generator that lost its variety would show nothing."""
    values = [value for answer in answers for value in answer.get("values", ())]
    refused = [answer["refused"] for answer in answers if "refused" in answer]
    assert len(refused) > EXPRESSIONS // 5
    for value in (True, False, None, "error"):
        assert sum(found is value or found == value for found in values) > 1000, value
    for words in (
        "ParseException: Encountered",
        "ParseException: Expression will not result in a boolean value",
        "TokenMgrError: Lexical error",
        "java.lang.NumberFormatException",
        "is less than 4.9E-324",
        "is greater than 1.7976931348623157E308",
        "Expected a property for In expression",
        "cannot be compared.",
        "cannot be compared with",
        "Illegal values of between, left value",
        "Illegal values of between, values can not be null!",
    ):
        assert any(words in text for text in refused), words


def test_bloom_filters_have_the_same_bits(ask_java: Ask) -> None:
    keys = ["", "a", "group#topic", "中文😀", *("k" * length for length in range(1, 40))]
    counts = (1, 2, 7, 32, 64, 1000)
    requests: list[Json] = [
        {"errorRate": rate, "count": count, "keys": keys}
        for rate in range(1, 100)
        for count in counts
    ]
    for request, java in zip(requests, ask_java(requests), strict=True):
        bloom = BloomFilter(error_percent=request["errorRate"], expected_count=request["count"])
        bits = BitsArray.of_length(bloom.bit_count)
        for key in keys:
            bits.add(bloom.generate(key))
        assert java == {
            "hashCount": bloom.hash_count,
            "bitCount": bloom.bit_count,
            "positions": [list(bloom.positions(key)) for key in keys],
            "bytes": list(bytes(bits)),
        }, request
