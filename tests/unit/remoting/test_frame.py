"""Cutting bytes into frames: caps, order of checks, and what is held."""

from __future__ import annotations

import struct

import pytest

from roquet.errors import ProtocolError
from roquet.remoting.frame import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    PART_BYTES,
    Frame,
    FrameDecoder,
    Received,
    SerializeType,
    encode_frame,
    encode_frame_head,
)

FRAME = Frame(SerializeType.JSON, b'{"code":1}', b"body")
DATA = encode_frame(*FRAME)


def refused(data: bytes) -> ProtocolError:
    decoder = FrameDecoder()
    decoder.feed(data)
    with pytest.raises(ProtocolError) as caught:
        decoder.next_frame()
    return caught.value


MIB = 1 << 20


def test_layout() -> None:
    assert struct.pack(">iBBBB", 4 + 10 + 4, 0, 0, 0, 10) + b'{"code":1}body' == DATA
    binary = encode_frame(SerializeType.ROCKETMQ, bytes(21))
    assert binary == struct.pack(">iI", 25, 1 << 24 | 21) + bytes(21)


@pytest.mark.parametrize("step", [1, 3, 7, 8, 9, len(DATA), len(DATA) + 1])
def test_frames_are_reassembled_from_any_pieces(step: int) -> None:
    decoder = FrameDecoder()
    stream = DATA * 5
    found: list[Frame] = []
    for start in range(0, len(stream), step):
        decoder.feed(stream[start : start + step])
        found += list(decoder)
    assert found == [FRAME] * 5
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken_and_copied(kind: type) -> None:
    source = bytearray(DATA)
    decoder = FrameDecoder()
    decoder.feed(kind(source))
    source[:] = bytes(len(source))
    if kind is not memoryview:
        assert decoder.next_frame() == FRAME
    decoder = FrameDecoder()
    view = memoryview(bytearray(DATA))
    decoder.feed(view)
    view[:] = bytes(len(view))
    assert decoder.next_frame() == FRAME


def test_a_frame_owns_its_bytes() -> None:
    decoder = FrameDecoder()
    decoder.feed(DATA)
    frame = decoder.next_frame()
    decoder.feed(b"\xff" * 3)
    assert frame == FRAME
    assert type(frame.header) is bytes
    assert type(frame.body) is bytes


@pytest.mark.parametrize("step", [1, 3, 9, len(DATA), len(DATA) + 5])
def test_lent_bytes_may_change_once_they_are_kept(step: int) -> None:
    decoder = FrameDecoder()
    shared = memoryview(bytearray(4 * len(DATA)))
    stream = DATA * 5
    found: list[Frame] = []
    for start in range(0, len(stream), step):
        part = stream[start : start + step]
        waiting = decoder.buffered_bytes
        shared[:waiting] = decoder.waiting
        shared[waiting : waiting + len(part)] = part
        decoder.lend(shared[: waiting + len(part)])
        found += list(decoder)
        decoder.keep()
        shared[:] = b"\xff" * len(shared)
    assert found == [FRAME] * 5
    assert decoder.buffered_bytes == 0


def test_remaining_frames_of_lent_bytes_are_kept() -> None:
    decoder = FrameDecoder()
    shared = memoryview(bytearray(DATA * 3))
    decoder.lend(shared)
    assert decoder.next_frame() == FRAME
    decoder.keep()
    shared[:] = bytes(len(shared))
    assert decoder.buffered_bytes == 2 * len(DATA)
    assert list(decoder) == [FRAME] * 2


def test_nothing_is_lent_after_a_bad_frame() -> None:
    decoder = FrameDecoder()
    decoder.lend(memoryview(b"\xff" * 8))
    with pytest.raises(ProtocolError):
        decoder.next_frame()
    decoder.keep()
    with pytest.raises(ProtocolError):
        decoder.lend(memoryview(DATA))


def test_frame_without_header_and_body() -> None:
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">iI", 4, 0))
    assert decoder.next_frame() == Frame(SerializeType.JSON, b"", b"")


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, MAX_FRAME_BYTES - 3, 2**31 - 1])
def test_bad_length_is_refused_from_its_four_bytes(length: int) -> None:
    error = refused(struct.pack(">i", length))
    assert f"a bad length of {length} bytes" in error.message


def test_the_longest_frame_is_accepted() -> None:
    decoder = FrameDecoder()
    data = struct.pack(">iI", MAX_FRAME_BYTES - 4, 0) + bytes(MAX_FRAME_BYTES - 8)
    decoder.feed(data)
    frame = decoder.next_frame()
    assert frame is not None
    assert len(frame.body) == MAX_FRAME_BYTES - 8


@pytest.mark.parametrize("serialize_type", [2, 3, 127, 128, 255])
def test_unknown_serialize_type_is_refused_before_the_rest_arrives(serialize_type: int) -> None:
    error = refused(struct.pack(">iI", 1000, serialize_type << 24 | 10))
    assert f"unknown serialize type {serialize_type}" in error.message


@pytest.mark.parametrize(
    ("length", "header_bytes"),
    [(4, 1), (100, 97), (1000, 0xFFFFFF), (MAX_FRAME_BYTES - 4, MAX_HEADER_BYTES + 1)],
)
def test_bad_header_length_is_refused_before_the_rest_arrives(
    length: int, header_bytes: int
) -> None:
    error = refused(struct.pack(">iI", length, header_bytes))
    assert f"a bad header length of {header_bytes} bytes" in error.message


def test_header_that_fills_the_frame_is_accepted() -> None:
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">iI", 100, 96) + bytes(96))
    assert decoder.next_frame() == Frame(SerializeType.JSON, bytes(96), b"")


def test_good_frames_before_a_bad_one_are_returned() -> None:
    decoder = FrameDecoder()
    decoder.feed(DATA * 2 + struct.pack(">i", -1))
    assert [decoder.next_frame(), decoder.next_frame()] == [FRAME, FRAME]
    with pytest.raises(ProtocolError):
        decoder.next_frame()


def test_after_a_bad_frame_the_stream_is_over() -> None:
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">i", -1))
    for _ in range(2):
        with pytest.raises(ProtocolError, match="a bad length of -1"):
            decoder.next_frame()
    with pytest.raises(ProtocolError, match="a bad length of -1"):
        decoder.feed(DATA)
    assert decoder.buffered_bytes == 0


def test_strangers_are_recognised() -> None:
    assert "TLS" in str(refused(bytes.fromhex("16030100")))
    assert "HTTP" in str(refused(b"GET / HTTP/1.1\r\n"))
    assert refused(struct.pack(">i", -1)).hint is None


def test_a_decoder_that_is_not_drained_accepts_no_more() -> None:
    decoder = FrameDecoder(max_frame_bytes=64)
    decoder.feed(DATA * 4)
    with pytest.raises(BufferError, match="88 bytes wait"):
        decoder.feed(b"x")
    assert len(list(decoder)) == 4
    decoder.feed(DATA)
    assert decoder.next_frame() == FRAME


def test_no_space_is_reserved_for_what_was_only_announced() -> None:
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">iI", MAX_FRAME_BYTES - 4, 100))
    assert decoder.next_frame() is None
    assert decoder._buffer.__sizeof__() < 200


def test_a_smaller_cap() -> None:
    decoder = FrameDecoder(max_frame_bytes=len(DATA))
    decoder.feed(DATA)
    assert decoder.next_frame() == FRAME
    decoder = FrameDecoder(max_frame_bytes=len(DATA) - 1)
    decoder.feed(DATA)
    with pytest.raises(ProtocolError):
        decoder.next_frame()


def test_frames_too_long_are_not_written() -> None:
    head = encode_frame_head(SerializeType.JSON, header_bytes=100, body_bytes=MAX_FRAME_BYTES - 108)
    assert head == struct.pack(">iI", MAX_FRAME_BYTES - 4, 100)
    with pytest.raises(ProtocolError, match=f"{MAX_FRAME_BYTES + 1} bytes is too long"):
        encode_frame_head(SerializeType.JSON, header_bytes=100, body_bytes=MAX_FRAME_BYTES - 107)
    with pytest.raises(ProtocolError, match="is too long"):
        encode_frame_head(SerializeType.JSON, header_bytes=MAX_HEADER_BYTES + 1, body_bytes=0)


def test_a_frame_is_not_examined_before_it_is_whole() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(SerializeType.JSON, b"{}", bytes(100))
    looked: list[int] = []

    def take(data: Received, position: int) -> int:
        looked.append(len(data) - position)
        return len(data)

    decoder.feed(frame[:50])
    assert decoder.next_frame() is None
    decoder.feed(frame[50:-1])
    decoder.take_with(take)
    assert not looked
    decoder.feed(frame[-1:])
    decoder.feed(frame[:20])
    decoder.take_with(take)
    assert looked == [len(frame) + 20]
    decoder.feed(frame[:20])
    decoder.take_with(take)
    assert looked == [len(frame) + 20, 20]


def test_a_cleared_decoder_holds_nothing() -> None:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(SerializeType.JSON, b"{}", bytes(100))[:60])
    assert decoder.next_frame() is None
    decoder.clear()
    assert decoder.buffered_bytes == 0
    assert decoder.next_frame() is None


@pytest.mark.parametrize("step", [1_000, PART_BYTES // 3, PART_BYTES, 5 * PART_BYTES])
def test_long_frames_are_reassembled_from_their_parts(step: int) -> None:
    bodies = [bytes([number]) * size for number, size in enumerate((3_000_000, 10, 700_000), 1)]
    data = b"".join(encode_frame(SerializeType.JSON, b"{}", body) for body in bodies)
    decoder = FrameDecoder()
    frames: list[Frame] = []
    for start in range(0, len(data), step):
        decoder.feed(memoryview(data)[start : start + step])
        frames += decoder
        assert decoder.buffered_bytes == min(start + step, len(data)) - sum(
            8 + len(frame.header) + len(frame.body) for frame in frames
        )
    assert [frame.body for frame in frames] == bodies


def test_a_long_frame_can_be_lent_on_after_its_parts() -> None:
    data = encode_frame(SerializeType.JSON, b"{}", bytes(range(256)) * 8_192)
    decoder = FrameDecoder()
    for start in range(0, 2 * MIB, PART_BYTES):
        decoder.feed(data[start : start + PART_BYTES])
        assert decoder.next_frame() is None
    assert decoder.waiting == data[: 2 * MIB]
    decoder.lend(memoryview(data))
    seen: list[int] = []

    def look(buffer: Received, position: int) -> int:
        seen.append(len(buffer))
        return position

    decoder.take_with(look)
    assert seen == [len(data)]
    assert [frame.body for frame in decoder] == [bytes(range(256)) * 8_192]


def test_a_cleared_decoder_forgets_the_parts_of_a_long_frame() -> None:
    data = encode_frame(SerializeType.JSON, b"{}", bytes(MIB))
    decoder = FrameDecoder()
    for start in range(0, 3 * PART_BYTES, PART_BYTES):
        decoder.feed(data[start : start + PART_BYTES])
        assert decoder.next_frame() is None
    decoder.clear()
    assert decoder.buffered_bytes == 0
    decoder.feed(encode_frame(SerializeType.JSON, b"{}", b"next"))
    assert [frame.body for frame in decoder] == [b"next"]
