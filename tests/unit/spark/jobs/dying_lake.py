"""A file system that dies at a chosen step, as the process that writes to it would."""

from __future__ import annotations

import posixpath

import pyarrow.fs as pafs


class Killed(BaseException):
    """The process is gone; nothing may catch this."""


class DyingFiles(pafs.FileSystemHandler):
    """The local file system, up to a step. A step is whatever changes it.

    Args:
        steps_max: How many steps are done; everything after them fails.
        is_store: Whether it is an object store, which has no folders.
    """

    def __init__(self, steps_max: int, *, is_store: bool = False) -> None:
        self.is_store = is_store
        self._files = pafs.LocalFileSystem()
        self._left = steps_max

    @property
    def is_dead(self) -> bool:
        return self._left < 0

    def _step(self) -> None:
        self._left -= 1
        self._live()

    def _live(self) -> None:
        if self.is_dead:
            raise Killed

    def move(self, src: str, dest: str) -> None:
        assert not self.is_store
        self._step()
        self._files.move(src, dest)

    def delete_file(self, path: str) -> None:
        self._step()
        self._files.delete_file(path)

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - Arrow's
        self._step()
        self._files.create_dir(path, recursive=recursive)

    def open_output_stream(self, path: str, metadata: object) -> object:
        self._step()
        if self.is_store:
            self._files.create_dir(posixpath.dirname(path))
        return self._files.open_output_stream(path, metadata=metadata)

    def open_input_stream(self, path: str) -> object:
        self._live()
        return self._files.open_input_stream(path)

    def open_input_file(self, path: str) -> object:
        self._live()
        return self._files.open_input_file(path)

    def get_file_info(self, paths: list[str]) -> object:
        self._live()
        return self._files.get_file_info(paths)

    def get_file_info_selector(self, selector: pafs.FileSelector) -> object:
        self._live()
        return self._files.get_file_info(selector)

    def get_type_name(self) -> str:
        return "dying"

    def normalize_path(self, path: str) -> str:
        return path

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - Arrow's
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: object) -> object:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)
