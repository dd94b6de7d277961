"""A slave that keeps nothing: what a slave on another machine costs its master.

Run by :mod:`benchmarks.pairs` as ``python -m benchmarks.ha_sink HOST:PORT``. It asks a master for
its log, as an empty slave does, reports what it has received after each read, and drops it. So it
takes hardly more of this machine than the receiving of the bytes.
"""

from __future__ import annotations

import socket
import sys

from roquet.format.ha_frames import REPORT_BYTES, TRANSFER_HEADER_BYTES, encode_report

READ_BYTES = 256 << 10


class Skipper:
    """Finds the end of the received log without keeping it.

    Attributes:
        end_offset: Where it ends.
    """

    def __init__(self) -> None:
        self.end_offset = 0
        self._header = bytearray()
        self._left = 0

    def skip(self, data: memoryview) -> None:
        """Go on over received bytes, which may be split anywhere."""
        at = 0
        while at < len(data):
            if self._left:
                count = min(self._left, len(data) - at)
                self._left -= count
                self.end_offset += count
            else:
                count = min(TRANSFER_HEADER_BYTES - len(self._header), len(data) - at)
                self._header += data[at : at + count]
                if len(self._header) == TRANSFER_HEADER_BYTES:
                    self.end_offset = int.from_bytes(self._header[:REPORT_BYTES])
                    self._left = int.from_bytes(self._header[REPORT_BYTES:])
                    self._header.clear()
            at += count


def follow(address: str) -> None:
    """Follow a master until it closes the connection."""
    host, _, port = address.rpartition(":")
    block, skipper = memoryview(bytearray(READ_BYTES)), Skipper()
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(encode_report(0))
        while count := connection.recv_into(block):
            skipper.skip(block[:count])
            connection.sendall(encode_report(skipper.end_offset))


if __name__ == "__main__":
    follow(sys.argv[1])
