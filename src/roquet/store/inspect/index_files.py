"""Index files of a store, mapped for reading."""

from __future__ import annotations

from pathlib import Path

from roquet.format.index_file import FILE_NAME_DIGITS
from roquet.format.index_view import IndexView
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
        """Let go of the mapping."""
        if self._mapping is not None:
            self._search = None
            self._files.unmap(self._mapping, self._data)
            self._mapping = None


def open_index_files(
    files: Files, directory: Path, *, slots: int | None = None
) -> tuple[list[IndexFileView], list[Path]]:
    """The index files in the order of their creation, and paths that are none.

    A file that does not tell its number of slots takes that of its neighbours of equal length.
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
