"""The file ``roquet-index.mark``: how far the newest index file was on disk.

Owns the file and its meaning. The checkpoint vouches only for full index files, so after a crash a
half-full file of millions of entries would be rebuilt from gigabytes of the log. The mark keeps the
header that such a file had before it was synced: the entries it counts are on disk, and are
complete for their records. The slots may have changed since; they follow from the entries.

The mark is one sector, written in place after the sync. A torn mark, or one of a file that is gone,
is ignored. Java ignores the file.

======= ====== ==================================================================
bytes   field  meaning
======= ====== ==================================================================
8       magic  ``RQINDEX1``
17      name   of the index file
7              zeros
40      header of the index file
4       crc32  of all before it
======= ====== ==================================================================
"""

from __future__ import annotations

import struct
import zlib
from array import array
from pathlib import Path
from typing import NamedTuple

from roquet.format import index_file as layout
from roquet.format.index_file import IndexHeader
from roquet.runtime.files import Files
from roquet.store.index_file import IndexFile

MARK_FILE = "roquet-index.mark"
_MAGIC = b"RQINDEX1"
_BODY = struct.Struct(">8s17s7x40s")
_CRC = struct.Struct(">I")
_INTS_AN_ENTRY = layout.ENTRY_BYTES // 4
_STEP_ENTRIES = 1 << 16


class IndexMark(NamedTuple):
    """Entries of an index file that are on disk: all those that this header counts."""

    name: str
    header: IndexHeader

    def pack(self) -> bytes:
        """The bytes of the file."""
        body = _BODY.pack(_MAGIC, self.name.encode("ascii"), self.header.pack())
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def unpack(cls, data: bytes) -> IndexMark | None:
        """Parse the file; ``None`` if it is torn."""
        if len(data) < _BODY.size + _CRC.size:
            return None
        body = data[: _BODY.size]
        magic, name, header = _BODY.unpack(body)
        (crc,) = _CRC.unpack_from(data, _BODY.size)
        if magic != _MAGIC or crc != zlib.crc32(body):
            return None
        return cls(name.decode("ascii", "replace"), IndexHeader.unpack(header))

    def fits(self, name: str, header: IndexHeader) -> bool:
        """Whether a file is the marked one, as it was then or with more entries."""
        mine = self.header
        return (
            name == self.name
            and mine.index_count > 1
            and header.begin_physical_offset == mine.begin_physical_offset
            and header.index_count >= mine.index_count
            and header.end_physical_offset >= mine.end_physical_offset
        )


class IndexMarkFile:
    """The mark of one store."""

    def __init__(self, files: Files, root: Path) -> None:
        """Keep it in ``root``, the store's directory."""
        self._files = files
        self._path = root / MARK_FILE

    def read(self) -> IndexMark | None:
        """The mark, if there is one."""
        if not self._files.exists(self._path):
            return None
        return IndexMark.unpack(self._files.read_file(self._path))

    def write(self, mark: IndexMark) -> None:
        """Replace the mark, durably; raises ``OSError``."""
        is_new = not self._files.exists(self._path)
        fd = self._files.open(self._path, write=True, create=True)
        try:
            self._files.write_at(fd, mark.pack(), 0)
            self._files.data_sync(fd)
        finally:
            self._files.close(fd)
        if is_new:
            self._files.sync_dir(self._path.parent)

    def remove(self) -> None:
        """Remove the mark durably, so that it vouches for nothing."""
        if self._files.exists(self._path):
            self._files.unlink(self._path)
            self._files.sync_dir(self._path.parent)


def rewind(files: Files, file: IndexFile, header: IndexHeader) -> None:
    """Rewind an index file to an earlier header; raises ``OSError``.

    Every slot is rebuilt from the entries that count. The mark stays valid meanwhile, because
    these entries are not touched.
    """
    mapping, slots = file.mapping, file.slots
    if file.header == header and max(_slots_of(file)) < header.index_count:
        return  # nothing was put since
    table = array("i", bytes(slots * layout.SLOT_BYTES))
    for first in range(1, header.index_count, _STEP_ENTRIES):
        end = min(first + _STEP_ENTRIES, header.index_count)
        entries = array("i", mapping[_entry_at(file, first) : _entry_at(file, end)])
        entries.byteswap()
        for number, key_hash in enumerate(entries[::_INTS_AN_ENTRY], first):
            table[key_hash % slots] = number
    table.byteswap()
    if not file.has_blocks:
        files.allocate(file.fd, len(mapping))
        file.has_blocks = True
    files.zero_range(file.fd, _entry_at(file, header.index_count), len(mapping))
    mapping[layout.HEADER_BYTES : layout.HEADER_BYTES + len(table) * layout.SLOT_BYTES] = bytes(
        table
    )
    mapping[: layout.HEADER_BYTES] = header.pack()
    files.data_sync(file.fd)


def _slots_of(file: IndexFile) -> array[int]:
    end = layout.slot_position(file.slots)
    table = array("i", file.mapping[layout.HEADER_BYTES : end])
    table.byteswap()
    return table


def _entry_at(file: IndexFile, number: int) -> int:
    return layout.entry_position(file.slots, number)
