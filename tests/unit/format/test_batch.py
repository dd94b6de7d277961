from __future__ import annotations

import pytest

from roquet.errors import ProtocolError
from roquet.format.batch import BATCH_ENTRY_BYTES_MIN, decode_batch, encode_batch

ENTRIES = [(0, b"first", b"a\x01b\x02"), (-1, b"", b""), (7, b"x" * 1000, b"k\x01v")]


def test_round_trip() -> None:
    data = encode_batch(ENTRIES)
    assert len(data) == 3 * BATCH_ENTRY_BYTES_MIN + 5 + 4 + 1000 + 3
    found = [(e.flag, bytes(e.body), bytes(e.properties)) for e in decode_batch(data)]
    assert found == ENTRIES
    assert [bytes(e.body) for e in decode_batch(memoryview(data))] == [b for _, b, _ in ENTRIES]


def test_an_empty_batch_has_no_messages() -> None:
    assert list(decode_batch(b"")) == []


def test_total_size_magic_and_crc_are_ignored() -> None:
    data = bytearray(encode_batch(ENTRIES[:1]))
    data[:12] = b"\xff" * 12
    assert [bytes(entry.body) for entry in decode_batch(bytes(data))] == [b"first"]


def test_every_cut_except_between_messages_is_refused() -> None:
    data = encode_batch(ENTRIES)
    whole = {0, BATCH_ENTRY_BYTES_MIN + 9, 2 * BATCH_ENTRY_BYTES_MIN + 9, len(data)}
    for length in range(len(data) + 1):
        if length in whole:
            list(decode_batch(data[:length]))
        else:
            with pytest.raises(ProtocolError) as raised:
                list(decode_batch(data[:length]))
            assert "message at byte" in (raised.value.detail or "")


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (16, b"\xff\xff\xff\xff"),  # body length -1
        (16, b"\x7f\xff\xff\xff"),
        (25, b"\xff\xff"),  # properties length -1
        (25, b"\x7f\xff"),
    ],
)
def test_bad_lengths_are_refused(position: int, value: bytes) -> None:
    data = bytearray(encode_batch(ENTRIES[:1]))
    data[position : position + len(value)] = value
    with pytest.raises(ProtocolError):
        list(decode_batch(bytes(data)))
