"""Converts frames to commands and back.

The serialize type selects one of the two header codecs.
"""

from __future__ import annotations

from collections.abc import Callable

from roquet.remoting.binary_header import decode_binary_header, encode_binary_header
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import Frame, SerializeType, encode_frame, encode_frame_head
from roquet.remoting.json_header import decode_json_header, encode_json_header

__all__ = ["decode_command", "encode_command", "encode_command_head"]

_DECODERS: dict[SerializeType, Callable[[bytes], RemotingCommand]] = {
    SerializeType.JSON: decode_json_header,
    SerializeType.ROCKETMQ: decode_binary_header,
}
_ENCODERS: dict[SerializeType, Callable[[RemotingCommand], bytes]] = {
    SerializeType.JSON: encode_json_header,
    SerializeType.ROCKETMQ: encode_binary_header,
}


def decode_command(frame: Frame) -> RemotingCommand:
    """Decode a frame.

    Raises:
        ProtocolError: Its header cannot be decoded.
    """
    command = _DECODERS[frame.serialize_type](frame.header)
    command.body = frame.body
    return command


def encode_command(command: RemotingCommand) -> bytes:
    """Encode a command as a frame.

    Raises:
        ProtocolError: It does not fit a frame or its header codec.
    """
    header = _ENCODERS[command.serialize_type](command)
    return encode_frame(command.serialize_type, header, command.body)


def encode_command_head(command: RemotingCommand, *, body_bytes: int) -> bytes:
    """Encode the frame of a command up to its body, which the caller writes after it.

    Pull responses are slices of the log; joining them first would copy every message.

    Raises:
        ProtocolError: It does not fit a frame or its header codec.
    """
    header = _ENCODERS[command.serialize_type](command)
    head = encode_frame_head(
        command.serialize_type, header_bytes=len(header), body_bytes=body_bytes
    )
    return head + header
