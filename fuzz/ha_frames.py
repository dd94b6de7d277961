"""Both directions of the HA port: what a slave takes from a master, and a master from a slave."""

from __future__ import annotations

from fuzz import corpus
from fuzz.outcome import refused, size_class
from roquet.errors import ProtocolError
from roquet.format.ha_frames import (
    BODY_BYTES_MAX,
    ReportDecoder,
    TransferDecoder,
    encode_report,
    encode_transfer_header,
)

TOKENS = (
    encode_report(0),
    encode_report(-1),
    encode_transfer_header(0, 0),
    encode_transfer_header(1 << 40, BODY_BYTES_MAX),
    encode_transfer_header(0, BODY_BYTES_MAX + 1),
    encode_transfer_header(0, -1),
)


def seeds() -> list[bytes]:
    """What Java's master and slave sent each other."""
    return corpus.replication()


def fuzz_one(data: bytes) -> str:
    """Bytes are refused, or read the same whole and in pieces."""
    half = len(data) // 2
    pieces = [data[:half], data[half : half + 5], data[half + 5 :]]
    outcomes: list[str] = []
    for read in (_transferred, _reported):
        try:
            whole = read([data])
        except ProtocolError as error:
            outcomes.append(refused(error))
        else:
            assert read(pieces) == whole
            outcomes.append(f"{size_class(len(whole))} read")
    return "; ".join(outcomes)


def _transferred(pieces: list[bytes]) -> bytes:
    """The log's bytes; each follows the one before within its transfer."""
    decoder = TransferDecoder()
    log = b""
    for piece in pieces:
        for offset, part in decoder.feed(piece):
            assert offset >= 0
            log += part
    return log


def _reported(pieces: list[bytes]) -> list[int]:
    decoder = ReportDecoder()
    return [offset for piece in pieces for offset in decoder.feed(piece)]
