"""Index files of a store, mapped for reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from roquet.errors import StoreError
from roquet.format.index_file import FILE_NAME_DIGITS, file_size
from roquet.format.index_view import DEFAULT_ENTRIES, DEFAULT_SLOTS, IndexView
from roquet.runtime.files import Files


class IndexFileView(IndexView):
    """One index file, mapped.

    Attributes:
        path: The file.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._files = files
        fd = files.open(path)
        try:
            size_bytes = files.length(fd)
            self._mapping = files.map(fd, size_bytes, write=False) if size_bytes else None
        finally:
            files.close(fd)
        view = memoryview(self._mapping) if self._mapping is not None else memoryview(b"")
        super().__init__(view, self._mapping)

    def close(self) -> None:
        """Release the mapping."""
        if self._mapping is not None:
            self._search = None
            self._files.unmap(self._mapping, self._data)
            self._mapping = None


class IndexShape(NamedTuple):
    """Slots and entries of an index file; entry 0 is never used."""

    slots: int
    entries: int

    @property
    def used_entries(self) -> int:
        """How many entries a full file holds."""
        return self.entries - 1


def usual_shape(
    index_files: Iterable[IndexFileView], slots: int | None, entries: int | None
) -> IndexShape:
    """The shape for new files: as requested, as most files have it, or upstream's.

    Raises:
        StoreError: The files differ in length from upstream's, and their shape is unknown.
    """
    found = list(index_files)
    known = Counter((each.slots, each.entry_capacity) for each in found if each.slots)
    if known:
        told = max(known, key=lambda shape: known[shape])
        return IndexShape(slots or told[0], entries or told[1])
    sizes = {each.size_bytes for each in found}
    if slots is None and sizes - {file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES)}:
        raise StoreError(
            "the index files do not show how many slots they have",
            detail=f"files of {', '.join(f'{size} bytes' for size in sorted(sizes))}",
            hint="pass the broker's maxHashSlotNum and maxIndexNum as --index-slots and "
            "--index-entries",
        )
    return IndexShape(slots or DEFAULT_SLOTS, entries or DEFAULT_ENTRIES)


def open_index_files(
    files: Files, directory: Path, *, slots: int | None = None
) -> tuple[list[IndexFileView], list[Path]]:
    """The index files in order of creation, and paths that are not index files.

    A file whose number of slots is unknown gets that of its neighbours of equal length.
    """
    views: list[IndexFileView] = []
    strangers: list[Path] = []
    for name in files.list_dir(directory):
        path = directory / name
        if len(name) != FILE_NAME_DIGITS or not (name.isascii() and name.isdecimal()):
            strangers.append(path)
            continue
        try:
            view = IndexFileView(files, path)
        except FileNotFoundError:
            continue  # a running broker removed it after the listing
        if view.is_whole:
            view.slots = slots or view.infer_slots()
            views.append(view)
        else:
            view.close()
            strangers.append(path)
    known = {view.size_bytes: view.slots for view in views if view.slots}
    for view in views:
        view.slots = view.slots or known.get(view.size_bytes, 0)
    return views, strangers
