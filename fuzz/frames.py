"""Frames: a stream of bytes, cut anywhere, into commands."""

from __future__ import annotations

from fuzz import corpus
from fuzz.outcome import refused, size_class
from roquet.errors import ProtocolError
from roquet.remoting.codec import decode_command
from roquet.remoting.frame import MAX_FRAME_BYTES, Frame, FrameDecoder, encode_frame

TOKENS = (
    b"\x00\x00\x00\x04\x00\x00\x00\x00",
    b"\x00\x00\x00\x15\x01\x00\x00\x11",
    b"\x01\x00\x00\x00\x00\x00\x00\x00",
    b"\x16\x03\x01",
    b"GET / HTTP/1.1\r\n",
)


def seeds() -> list[bytes]:
    """Frames, alone and several in a row."""
    frames = corpus.frames()
    return [*frames, *(b"".join(frames[start : start + 3]) for start in range(0, len(frames), 9))]


def fuzz_one(data: bytes) -> str:
    """The same frames come out however the stream is cut, and they are the bytes that went in."""
    whole, ending = _cut(data, len(data) or 1)
    step = 1 + sum(data[:2]) % 97
    assert _cut(data, step) == (whole, ending), f"cut in steps of {step} it reads otherwise"
    taken = b"".join(encode_frame(*frame) for frame in whole)
    assert data.startswith(taken)
    words = {_understand(frame) for frame in whole}
    return f"{size_class(len(whole))} frames, {ending}, {sorted(words)}"


def _cut(data: bytes, step: int) -> tuple[list[Frame], str]:
    decoder = FrameDecoder()
    found: list[Frame] = []
    fed = 0
    try:
        for start in range(0, len(data), step):
            decoder.feed(data[start : start + step])
            fed += len(data[start : start + step])
            found += decoder
            held = fed - sum(8 + len(frame.header) + len(frame.body) for frame in found)
            assert decoder.buffered_bytes == held < MAX_FRAME_BYTES
    except ProtocolError as error:
        # Frames before the bad one, of the same piece, were lost to `+=`; take them again.
        return _before_the_bad_one(data), refused(error)
    return found, "open end" if decoder.buffered_bytes else "whole"


def _before_the_bad_one(data: bytes) -> list[Frame]:
    decoder = FrameDecoder()
    decoder.feed(data)
    found: list[Frame] = []
    try:
        while (frame := decoder.next_frame()) is not None:
            found.append(frame)
    except ProtocolError:
        assert decoder.buffered_bytes == 0, "a dead stream holds bytes"
    return found


def _understand(frame: Frame) -> str:
    try:
        command = decode_command(frame)
    except ProtocolError as error:
        return refused(error)
    assert command.body == frame.body
    return f"{'response' if command.is_response else 'request'} {command.code}"
