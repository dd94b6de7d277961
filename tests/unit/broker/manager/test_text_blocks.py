"""The text of a table in blocks is the text of its entries, whatever changed since the last one."""

from __future__ import annotations

import random

import pytest
from msgspec import Struct

from roquet.broker.manager import text_blocks as module
from roquet.broker.manager.text_blocks import TextBlocks


class Entry(Struct):
    number: int


def member(name: str, entry: Entry) -> bytes:
    return f'"{name}":{entry.number}'.encode()


def whole(table: dict[str, Entry]) -> bytes:
    return b"".join(TextBlocks[Entry](1, member).pieces(table))


def test_tables_without_and_with_entries() -> None:
    assert whole({}) == b"{\n\t\n}"
    assert whole({"a": Entry(1), "b": Entry(2)}) == b'{\n\t"a":1,\n\t"b":2\n}'


@pytest.mark.parametrize("seed", range(8))
def test_cached_blocks_equal_a_fresh_encoding(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 4)
    rng = random.Random(seed)
    texts = TextBlocks[Entry](1, member)
    table: dict[str, Entry] = {}
    for _ in range(200):
        name = f"n{rng.randrange(40)}"
        if rng.random() < 0.4:
            table.pop(name, None)
        else:
            table[name] = Entry(rng.randrange(1000))
        if rng.random() < 0.7:
            assert b"".join(texts.pieces(dict(table))) == whole(table)


def test_a_change_encodes_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 10)
    encoded: list[str] = []

    def noted(name: str, entry: Entry) -> bytes:
        encoded.append(name)
        return member(name, entry)

    texts = TextBlocks[Entry](1, noted)
    table = {f"n{number}": Entry(number) for number in range(105)}

    def write() -> int:
        encoded.clear()
        assert b"".join(texts.pieces(dict(table))) == whole(table)
        return len(encoded)

    assert (write(), write()) == (105, 0)
    table["new"] = Entry(0)
    assert write() == 6
    table["n50"] = Entry(0)
    assert write() == 10
    for name in ("n0", "n44"):
        del table[name]
    assert write() == 9 + 9
