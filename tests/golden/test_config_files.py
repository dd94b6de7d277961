"""Every configuration file that Apache RocketMQ 5.4.0 wrote is read and written back unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.model.fastjson import JsonKey, JsonValue, WritableJson, dumps, loads

DATA = Path(__file__).parent / "data"

# Not JSON: eight big-endian numbers in a page.
BINARY = {"timercheck"}

# Written in one line; every other file is written pretty.
COMPACT = {"timermetrics", "timermetrics.bak", "transactionMetrics", "transactionMetrics.bak"}

# Members that are Java arrays of numbers, which stay on one line.
JAVA_ARRAYS: set[JsonKey] = {"bitPos"}

FILES = sorted(
    path.relative_to(DATA).as_posix()
    for pattern in ("store-*/config/*", "store-*/compaction/*")
    for path in DATA.glob(pattern)
    if path.name not in BINARY
)


def as_declared_in_java(value: JsonValue) -> WritableJson:
    if isinstance(value, dict):
        return {
            key: tuple(member)
            if key in JAVA_ARRAYS and isinstance(member, list)
            else as_declared_in_java(member)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [as_declared_in_java(element) for element in value]
    return value


def test_all_kinds_of_files_are_present() -> None:
    names = {Path(name).name.removesuffix(".bak") for name in FILES}
    assert names == {
        "consumerFilter.json",
        "consumerOffset.json",
        "consumerOrderInfo.json",
        "delayOffset.json",
        "messageRequestMode.json",
        "position-checkpoint",
        "subscriptionGroup.json",
        "timermetrics",
        "topics.json",
        "transactionMetrics",
    }
    assert len(FILES) == 116


@pytest.mark.parametrize("name", FILES)
def test_file_is_written_back_byte_for_byte(name: str) -> None:
    original = (DATA / name).read_bytes()
    value = as_declared_in_java(loads(original))
    assert dumps(value, pretty=Path(name).name not in COMPACT).encode() == original


def test_queue_ids_are_integers() -> None:
    value = loads((DATA / "store-json-clean/config/consumerOffset.json").read_bytes())
    assert isinstance(value, dict)
    table = value["offsetTable"]
    assert isinstance(table, dict)
    assert table["GoldenOrder@golden_orderly"] == {0: 3, 1: 3, 2: 3, 3: 3}
