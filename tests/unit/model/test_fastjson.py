"""The dialect, with texts printed by fastjson2 2.0.43 and fastjson 1.2.83 on JDK 17."""

from __future__ import annotations

import math
import pickle

import pytest

from roquet.errors import RoquetError
from roquet.model.fastjson import (
    MAX_DEPTH,
    Dialect,
    JsonSyntaxError,
    JsonValue,
    ObjectKey,
    WritableJson,
    dumps,
    loads,
)

QUEUE = ObjectKey.of({"brokerName": "b", "queueId": 2, "topic": "T"})
CONTROLS = "".join(map(chr, range(0x20)))

# ------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("text", "fastjson2", "fastjson1"),
    [
        ("a\"b'c/d<e>f&g\\h", '"a\\"b\'c/d<e>f&g\\\\h"', '"a\\"b\'c/d<e>f&g\\\\h"'),
        ("\b\t\n\f\r", r'"\b\t\n\f\r"', r'"\b\t\n\f\r"'),
        ("\x00\x01\x0b\x1b\x1f", r'"\u0000\u0001\u000b\u001b\u001f"', None),
        ("\x0b\x1b\x1f", None, r'"\u000B\u001B\u001F"'),
        ("\x7f\x80\x9f\xa0\xad", '"\x7f\x80\x9f\xa0\xad"', '"\\u007F\\u0080\\u009F\xa0\xad"'),
        ("é中\ufeff\uffff\u200b😀", '"é中\ufeff\uffff\u200b😀"', '"é中\ufeff\uffff\u200b😀"'),
        ("\u2028\u2029", '"\u2028\u2029"', r'"\u2028\u2029"'),
        ("x\ud800y\udc00z", '"x?y?z"', '"x?y?z"'),
    ],
)
def test_strings_are_escaped_like_fastjson(
    text: str, fastjson2: str | None, fastjson1: str | None
) -> None:
    if fastjson2 is not None:
        assert dumps(text) == fastjson2
        assert dumps({text: 1}) == "{" + fastjson2 + ":1}"
    if fastjson1 is not None:
        assert dumps(text, dialect=Dialect.FASTJSON1) == fastjson1


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1e10, "-1.0E10"),
        (123456789.125, "1.23456789125E8"),
        (12345678.9, "1.23456789E7"),
        (1e16, "1.0E16"),
        (1e21, "1.0E21"),
        (1e23, "1.0E23"),
        (2e23, "2.0E23"),
        (0.1, "0.1"),
        (1 / 3, "0.3333333333333333"),
        (0.002, "0.002"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (5e-324, "4.9E-324"),
        (2.0**-24, "5.960464477539063E-8"),
        (-(2.0**-44), "-5.684341886080802E-14"),
        (2.0**89, "6.189700196426902E26"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, "null"),
        (math.inf, "null"),
        (-math.inf, "null"),
    ],
)
def test_doubles_are_printed_like_java(number: float, expected: str) -> None:
    assert dumps(number) == expected
    assert dumps(number, dialect=Dialect.FASTJSON1) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-9223372036854775808, "-9223372036854775808"),
        (9007199254740993, "9007199254740993"),
        (123456789012345678901234567890, "123456789012345678901234567890"),
        ({}, "{}"),
        ([], "[]"),
        ((), "[]"),
        ([1, None, "x"], '[1,null,"x"]'),
        ({"v": None}, "{}"),
        ({"n1": None, "x": 1, "n2": None, "y": 2}, '{"x":1,"y":2}'),
        ({"v": math.nan}, '{"v":null}'),
        ({0: "a:1", 5000000000: "b", -7: "c"}, '{0:"a:1",5000000000:"b",-7:"c"}'),
        ({"s": 1, 2: 2, "t": 3}, '{"s":1,2:2,"t":3}'),
        ([{}, [], {"k": (1, 2)}], '[{},[],{"k":[1,2]}]'),
        ({QUEUE: 9}, '{{"brokerName":"b","queueId":2,"topic":"T"}:9}'),
    ],
)
def test_compact(value: WritableJson, expected: str) -> None:
    assert dumps(value) == expected
    assert dumps(value, dialect=Dialect.FASTJSON1) == expected


@pytest.mark.parametrize(
    ("value", "fastjson2", "fastjson1"),
    [
        ({}, "{\n\t\n}", "{}"),
        ([], "[\n\t\n]", "[]"),
        ((), "[]", "[]"),
        ({"v": None}, "{\n\t\n}", "{\n}"),
        ([1, None, "x"], '[\n\t1,\n\tnull,\n\t"x"\n]', '[\n\t1,\n\tnull,\n\t"x"\n]'),
        ((1, 2), "[1,2]", "[1,2]"),
        ([{}, []], "[\n\t{\n\t\t\n\t},\n\t[\n\t\t\n\t]\n]", "[\n\t{},\n\t[]\n]"),
        (
            {"h": {"n": None, "x": 1, "y": 2}},
            '{\n\t"h":{\n\t\t"x":1,\n\t\t"y":2\n\t}\n}',
            '{\n\t"h":{\n\t\t"x":1,\n\t\t"y":2\n\t}\n}',
        ),
        (
            {"il": {0: 5, 1: 7}},
            '{\n\t"il":{\n\t\t0:5,\n\t\t1:7\n\t}\n}',
            '{\n\t"il":{0:5,1:7\n\t}\n}',
        ),
        (
            {"t": {0: {1: 2}}},
            '{\n\t"t":{\n\t\t0:{\n\t\t\t1:2\n\t\t}\n\t}\n}',
            '{\n\t"t":{0:{1:2\n\t\t}\n\t}\n}',
        ),
        (
            {"p": {"s": 1, 2: 2, "t": 3}},
            '{\n\t"p":{\n\t\t"s":1,\n\t\t2:2,\n\t\t"t":3\n\t}\n}',
            '{\n\t"p":{\n\t\t"s":1,2:2,\n\t\t"t":3\n\t}\n}',
        ),
        (
            {0: [{"q": 2}, {"q": 3}]},
            '{\n\t0:[\n\t\t{\n\t\t\t"q":2\n\t\t},\n\t\t{\n\t\t\t"q":3\n\t\t}\n\t]\n}',
            '{0:[\n\t\t{\n\t\t\t"q":2\n\t\t},\n\t\t{\n\t\t\t"q":3\n\t\t}\n\t]\n}',
        ),
        (
            {"m": {1: None, 2: {}, 3: {"q": 2}}},
            '{\n\t"m":{\n\t\t2:{\n\t\t\t\n\t\t},\n\t\t3:{\n\t\t\t"q":2\n\t\t}\n\t}\n}',
            '{\n\t"m":{2:{},3:{\n\t\t\t"q":2\n\t\t}\n\t}\n}',
        ),
        (
            {"v": {QUEUE: 9}},
            '{\n\t"v":{\n\t\t{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":2,\n\t\t\t"topic":"T"\n'
            "\t\t}:9\n\t}\n}",
            '{\n\t"v":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":2,\n\t\t\t"topic":"T"\n'
            "\t\t}:9\n\t}\n}",
        ),
    ],
)
def test_pretty(value: WritableJson, fastjson2: str, fastjson1: str) -> None:
    assert dumps(value, pretty=True) == fastjson2
    assert dumps(value, pretty=True, dialect=Dialect.FASTJSON1) == fastjson1


def test_pretty_set_of_objects_in_fastjson1() -> None:
    value = {"d": ({"q": 1}, {"q": 2})}
    expected = '{\n\t"d":[{\n\t\t"q":1\n\t},{\n\t\t"q":2\n\t}]\n}'
    assert dumps(value, pretty=True, dialect=Dialect.FASTJSON1) == expected


def test_pretty_order_info_of_rocketmq_5_4() -> None:
    info: dict[str, WritableJson] = {"cm": 9, "o": (1, 2), "oc": {5: 6}, "popTime": 9}
    assert dumps({"table": {"t@g": {0: info}}}, pretty=True) == (
        '{\n\t"table":{\n\t\t"t@g":{\n\t\t\t0:{\n\t\t\t\t"cm":9,\n\t\t\t\t"o":[1,2],\n'
        '\t\t\t\t"oc":{\n\t\t\t\t\t5:6\n\t\t\t\t},\n\t\t\t\t"popTime":9\n\t\t\t}\n\t\t}\n\t}\n}'
    )


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", object(), {"k": {3}}])
def test_values_without_a_form_are_refused(value: WritableJson) -> None:
    with pytest.raises(TypeError, match="cannot be represented in JSON"):
        dumps(value)


@pytest.mark.parametrize("key", [True, None, 1.5, (1, 2)])
def test_keys_without_a_form_are_refused(key: str) -> None:
    with pytest.raises(TypeError, match="cannot be a key"):
        dumps({key: 1})


def test_writing_is_bounded_like_reading() -> None:
    value: list[WritableJson] | dict[str, WritableJson] = []
    for level in range(1, MAX_DEPTH):
        value = [value] if level % 2 else {"k": value}
    assert dumps(value).count("[") + dumps(value).count("{") == MAX_DEPTH
    with pytest.raises(ValueError, match=f"nests deeper than {MAX_DEPTH} levels"):
        dumps([value])


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[WritableJson] = []
    value.append(value)
    with pytest.raises(ValueError, match="nests deeper"):
        dumps(value)


# ------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", None),
        ("true", True),
        (" 1 ", 1),
        ("{}", {}),
        ("[]", []),
        ("{1:2}", {1: 2}),
        ("{-1:2}", {-1: 2}),
        ("{01:2}", {1: 2}),
        ("{0:5,1:7}", {0: 5, 1: 7}),
        ("{ 0 : 5 , 1 : 7 , }", {0: 5, 1: 7}),
        ("{0:5,1:7,0:6}", {0: 6, 1: 7}),
        ('{"0":5,1:7}', {"0": 5, 1: 7}),
        ("{0:5,1:{2:-3}}", {0: 5, 1: {2: -3}}),
        ("{99999999999999999999:1}", {99999999999999999999: 1}),
        ("{1:99999999999999999999}", {1: 99999999999999999999}),
        ("{a:1,$b:2,c_3$:3,中:4}", {"a": 1, "$b": 2, "c_3$": 3, "中": 4}),
        ("{true:1,null:2}", {"true": 1, "null": 2}),
        ("{'a':'b'}", {"a": "b"}),
        ("{'a':'\"'}", {"a": '"'}),
        ('{"a":1,}', {"a": 1}),
        ("[1,2,]", [1, 2]),
        ('/*c*/{"a":1}', {"a": 1}),
        ('{"a":1// c\n}', {"a": 1}),
        ('{// c\n"a":1}// end', {"a": 1}),
        ('{"a":1/* c **/,"b":/**/2}', {"a": 1, "b": 2}),
        ('{"url":"x://y/*z*/"}', {"url": "x://y/*z*/"}),
        ('{"a":+1}', {"a": 1}),
        ('{"a":.5}', {"a": 0.5}),
        ('{"a":5.}', {"a": 5.0}),
        ('{"a":01}', {"a": 1}),
        ('{"a":1L,"b":1S,"c":1B}', {"a": 1, "b": 1, "c": 1}),
        ('{"a":1D,"b":1.5F}', {"a": 1.0, "b": 1.5}),
        ('{"a":1.0E10,b:-0.0}', {"a": 1e10, "b": -0.0}),
        ('{"a":9223372036854775808}', {"a": 9223372036854775808}),
        ('{"a":"x\ny\tz\x01"}', {"a": "x\ny\tz\x01"}),
        (r'{"a":"\x41\v\'\0\7\/\u00e9\uD83D\uDE00\"\\\b\f\n\r\t"}', None),
        ('{"a":1,"a":2}', {"a": 2}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('{\b\f"a":1}', {"a": 1}),
        ('{"a":{"$ref":"$.b"},"@type":"x"}', {"a": {"$ref": "$.b"}, "@type": "x"}),
        ('{{"queueId":2,"brokerName":"b","topic":"T"}:9}', {QUEUE: 9}),
        ('{{"topic":"T","queueId":2,"brokerName":"b"}:{0:1}}', {QUEUE: {0: 1}}),
        ("{{}:1}", {ObjectKey(()): 1}),
    ],
)
def test_what_fastjson_accepts_is_read(text: str, expected: JsonValue) -> None:
    if "uD83D" in text:
        expected = {"a": "A\v'\0\a/é😀\"\\\b\f\n\r\t"}
    for form in (text, text.encode()):
        value = loads(form)
        assert value == expected
        assert str(value) == str(expected)


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("", 1, 1, "there is no value"),
        (" \n\t", 2, 2, "there is no value"),
        ("// only a comment", 1, 18, "there is no value"),
        ("\x00\x00\x00\x00", 1, 1, "a value must follow"),
        ('{"a":1', 1, 7, "a ',' or '}' must follow"),
        ("[1", 1, 3, "a ',' or ']' must follow"),
        ('{"a"', 1, 5, "a ':' must follow"),
        ('{"a":', 1, 6, "it ends where a value must follow"),
        ('{\n\t"a":"b', 2, 6, "a string is not closed"),
        ("{'a':1,'b", 1, 8, "a string is not closed"),
        ('{"a" 1}', 1, 6, "a ':' must follow"),
        ('{"a":1 "b":2}', 1, 8, "a ',' or '}' must follow"),
        ("[1 2]", 1, 4, "a ',' or ']' must follow"),
        ("[1,,2]", 1, 4, "a value must follow"),
        ("{,a:1}", 1, 2, "a key or '}' must follow"),
        ('{"a":1,,"b":2}', 1, 8, "a key or '}' must follow"),
        ('{"a":1]', 1, 7, "a ',' or '}' must follow"),
        ("{0:1]", 1, 5, "a ',' or '}' must follow"),
        ('{"a":1}x', 1, 8, "something follows the value"),
        ('{"a":1}{"b":2}', 1, 8, "something follows the value"),
        ('{"a":1};', 1, 8, "something follows the value"),
        ("{1.5:2}", 1, 2, "a key or '}' must follow"),
        ("{[1]:2}", 1, 2, "a key or '}' must follow"),
        ("{a-b:1}", 1, 3, "a ':' must follow"),
        ("{%RETRY%g:1}", 1, 2, "a key or '}' must follow"),
        ("{{1:2}:3}", 1, 2, "an object that is a key holds plain members only"),
        ('{{"a":[]}:3}', 1, 2, "an object that is a key holds plain members only"),
        ('{"a":b}', 1, 6, "'b' is not a value; a string needs quotes"),
        ('{"a":NaN}', 1, 6, "'NaN' is not a value"),
        ('{"a":-Infinity}', 1, 6, "a value must follow"),
        ('{"a":TRUE}', 1, 6, "'TRUE' is not a value"),
        ('{"a":truex}', 1, 6, "'truex' is not a value"),
        ('{"a":nul}', 1, 6, "'nul' is not a value"),
        ('{"a":0x1F}', 1, 6, "a value must follow"),
        ('{"a":1.5L}', 1, 6, "this is not a number"),
        ('{"a":1.2.3}', 1, 6, "a value must follow"),
        ('{"a":-}', 1, 6, "a value must follow"),
        ('{"a":.}', 1, 6, "a value must follow"),
        ('{"a":.e5}', 1, 6, "this is not a number"),
        ('{"a":1e}', 1, 6, "a value must follow"),
        ('{"a":1e999}', 1, 6, "a number is too large"),
        ('{"a":' + "9" * 5000 + "}", 1, 6, "a number is too long"),
        ("{" + "9" * 5000 + ":1}", 1, 2, "a number is too long"),
        ('{"a":"x\\q"}', 1, 8, r"'\q' is not an escape"),
        ('{"a":"\\u12"}', 1, 7, r"'\u' is not an escape"),
        ('{"a":"\\ud800"}', 1, 7, "a string holds half a surrogate pair"),
        ("# c\n{}", 1, 1, "a value must follow"),
        ("{}\n/* open", 2, 1, "something follows the value"),
        ('{"a":"\ud800"}', 1, 7, "half a surrogate pair"),
    ],
)
def test_malformed_json_is_refused(text: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        loads(text)
    error = caught.value
    assert problem in error.message
    assert (error.line, error.column) == (line, column)
    assert error.detail is not None
    assert error.detail.startswith(f"line {line}, column {column}, near ")
    assert error.hint


def test_the_error_shows_the_position_and_only_its_line() -> None:
    text = '{\n\t"dataVersion":{"counter":1},\n\t"offsetTable":{"T@G":{0 5}}\n}'
    with pytest.raises(JsonSyntaxError) as caught:
        loads(text)
    assert caught.value.detail == 'line 3, column 26, near \'"offsetTable":{"T@G":{0 5}}\''


def test_a_truncated_text_is_reported_as_such() -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        loads('{"offsetTable":{')
    assert caught.value.hint == "The text is cut off: compare it with a complete copy."


def test_bytes_that_are_not_utf8_are_refused_with_their_position() -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        loads('{\n"é":"'.encode() + b'\xff\xfe"}')
    assert (caught.value.line, caught.value.column) == (2, 6)
    assert "not UTF-8" in caught.value.message
    assert r"\\xff" in (caught.value.detail or "")


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ("{a:", "}")])
def test_nesting_is_bounded(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    value = loads(nested(MAX_DEPTH))
    assert dumps(value)
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(JsonSyntaxError, match=f"nests deeper than {MAX_DEPTH} levels"):
            loads(nested(depth))


@pytest.mark.parametrize("innermost", ["[]", "{}"])
def test_nesting_counts_empty_brackets(innermost: str) -> None:
    assert loads("[" * (MAX_DEPTH - 1) + innermost + "]" * (MAX_DEPTH - 1)) is not None
    with pytest.raises(JsonSyntaxError, match="nests deeper"):
        loads("[" * MAX_DEPTH + innermost + "]" * MAX_DEPTH)


def test_nesting_counts_objects_that_are_keys() -> None:
    with pytest.raises(JsonSyntaxError, match="nests deeper"):
        loads("{" * (MAX_DEPTH + 1))


def test_object_keys_are_equal_whatever_their_order() -> None:
    other = ObjectKey.of({"topic": "T", "queueId": 2, "brokerName": "b"})
    assert other == QUEUE
    assert hash(other) == hash(QUEUE)
    assert other["topic"] == "T"
    with pytest.raises(KeyError):
        other["missing"]


def test_the_error_is_a_roquet_error_and_survives_pickling() -> None:
    with pytest.raises(RoquetError) as caught:
        loads("{")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (str(copy), copy.line, copy.column) == (str(caught.value), 1, 2)


def test_every_control_character_round_trips() -> None:
    for dialect in Dialect:
        assert loads(dumps(CONTROLS, dialect=dialect)) == CONTROLS
