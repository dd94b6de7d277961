"""The tables of codes are those of the classes of Apache RocketMQ 5.4.0."""

from __future__ import annotations

from enum import IntEnum

import pytest

from roquet.remoting.codes import (
    LanguageCode,
    RequestCode,
    ResponseCode,
    version_name,
    version_ordinal,
)
from tests.golden.wire_frames import golden_frames, protocol


@pytest.mark.parametrize(
    ("table", "ours"),
    [
        ("request_codes", RequestCode),
        ("response_codes", ResponseCode),
        ("languages", LanguageCode),
    ],
)
def test_names_and_numbers(table: str, ours: type[IntEnum]) -> None:
    assert {code.name: int(code) for code in ours} == protocol()[table]


def test_there_are_159_request_codes() -> None:
    assert len(RequestCode) == 159


def test_versions() -> None:
    names = list(protocol()["versions"])
    assert [version_name(ordinal) for ordinal in range(len(names))] == names
    assert [version_ordinal(name) for name in names] == list(range(len(names)))


def test_every_code_of_the_runs_has_a_name_or_is_known_to_lack_one() -> None:
    """9999 was sent to provoke the refusal; 3442 is POP_MESSAGE truncated by a binary header."""
    unknown = {golden.request_code for golden in golden_frames() if golden.known_code is None}
    assert unknown == {9999, 3442}
    assert RequestCode.POP_MESSAGE & 0xFFFF == 3442


def test_every_response_code_of_the_runs_has_a_name() -> None:
    known = {int(code) for code in ResponseCode}
    for golden in golden_frames():
        if golden.is_response:
            assert golden.header["code"] in known, golden.place
