import io
import logging
import sys

import pytest

from roquet.runtime.log import LineFormatter


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain Ünïcode 日本", "plain Ünïcode 日本"),
        ("a\nFORGED", "a\\nFORGED"),
        ("a\r\nb", "a\\r\\nb"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x00\x7f\x9b", "a\\x00\\x7f\\x9b"),
        ("a\u2028b\u2029", "a\\u2028b\\u2029"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_a_record_is_one_line(name: str, shown: str) -> None:
    record = logging.makeLogRecord({"msg": "topic %s", "args": (name,), "levelname": "INFO"})
    line = LineFormatter("%(levelname)s: %(message)s").format(record)
    assert line == f"INFO: topic {shown}"
    line.encode("utf-8")


def test_tracebacks_keep_their_lines() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(message)s"))
    try:
        int("lost")
    except ValueError:
        record = logging.makeLogRecord({"msg": "it\nbroke", "exc_info": sys.exc_info()})
    handler.handle(record)
    first, *rest = stream.getvalue().splitlines()
    assert first == "it\\nbroke"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1].startswith("ValueError: ")
