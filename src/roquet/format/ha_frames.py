"""What master and slave send each other on the HA port, as bytes.

Owns the layout and its decoders; all integers are big-endian and signed.

.. code-block:: text

    slave to master    report      physicalOffset 8
    master to slave    transfer    physicalOffset 8, bodySize 4, then bodySize bytes of the log
                       heartbeat   a transfer with bodySize 0

A report says where the slave's log ends; the first one also asks for the log from there. Bodies are
cut anywhere, also in the middle of a record, but never span two segments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from roquet.errors import ProtocolError

__all__ = [
    "BODY_BYTES_MAX",
    "REPORT_BYTES",
    "TRANSFER_HEADER_BYTES",
    "ReportDecoder",
    "TransferDecoder",
    "encode_report",
    "encode_transfer_header",
]

_REPORT = struct.Struct(">q")
_TRANSFER_HEADER = struct.Struct(">qi")

REPORT_BYTES = _REPORT.size
TRANSFER_HEADER_BYTES = _TRANSFER_HEADER.size
BODY_BYTES_MAX = (4 << 20) - TRANSFER_HEADER_BYTES
"""A Java slave reads into a buffer of 4 MiB and never gets past a longer frame."""


def encode_report(physical_offset: int) -> bytes:
    """A slave's report.

    Example:
        >>> encode_report(800).hex()
        '0000000000000320'
    """
    return _REPORT.pack(physical_offset)


def encode_transfer_header(physical_offset: int, body_bytes: int) -> bytes:
    """The header before a part of the log; a heartbeat if there are no bytes.

    Example:
        >>> encode_transfer_header(800, 3494).hex()
        '000000000000032000000da6'
    """
    return _TRANSFER_HEADER.pack(physical_offset, body_bytes)


class ReportDecoder:
    """Reads a slave's reports from bytes that may be split anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[int]:
        """Yield the reported offsets that ``data`` completes.

        Raises:
            ProtocolError: An offset is negative.
        """
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        for (physical_offset,) in _REPORT.iter_unpack(memoryview(data)[:whole]):
            if physical_offset < 0:
                raise ProtocolError(
                    "a slave reports a negative offset", detail=f"{physical_offset}"
                )
            yield physical_offset


class TransferDecoder:
    """Reads a master's transfers from bytes that may be split anywhere.

    Bodies are handed on as they arrive, so no more than a header is ever kept.
    """

    def __init__(self) -> None:
        self._header = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        """Yield a physical offset and the bytes that follow it in the log; none for a heartbeat.

        Raises:
            ProtocolError: A size is negative or too large, or an offset is negative.
        """
        view = memoryview(data)
        while view:
            if not self._left:
                missing = TRANSFER_HEADER_BYTES - len(self._header)
                self._header += view[:missing]
                view = view[missing:]
                if len(self._header) < TRANSFER_HEADER_BYTES:
                    return
                self._begin()
                if not self._left:
                    yield self._offset, view[:0]
                continue
            part, view = view[: self._left], view[self._left :]
            offset = self._offset
            self._offset += len(part)
            self._left -= len(part)
            yield offset, part

    def _begin(self) -> None:
        self._offset, self._left = _TRANSFER_HEADER.unpack(self._header)
        self._header = b""
        if self._offset < 0 or not 0 <= self._left <= BODY_BYTES_MAX:
            raise ProtocolError(
                "a master sends an impossible header",
                detail=f"{self._left} bytes from offset {self._offset}",
                hint="whoever listens there may be no master; check haMasterAddress",
            )
