"""Files with a hook before every call, the base class of the other fakes.

Owns :class:`QuickFiles`, which skips syncs, and :class:`HookedFiles`, which also calls a hook
before each call.
"""

from __future__ import annotations

from pathlib import Path

from roquet.runtime.files import Buffer, DiskUsage, Files, Mapping, ReadHook, WriteHook


class QuickFiles(Files):
    """Real files without syncs, for tests that need not survive a power cut.

    Example:
        async with broker(files=QuickFiles()) as quick:
            await quick.create_topic("Orders")
    """

    def data_sync(self, fd: int) -> None:
        """Do nothing: the kernel writes the bytes when it likes."""

    def sync_dir(self, path: Path) -> None:
        """Do nothing: the kernel writes the names when it likes."""


class HookedFiles(QuickFiles):
    """Quick files; :meth:`before` sees every call that the operating system could refuse.

    Reads and writes by compiled code are seen too; a subclass that needs the written bytes
    overrides :meth:`before_write`.

    Example:
        class Count(HookedFiles):
            count = 0

            def before(self, name: str, path: Path) -> None:
                self.count += 1

        files = Count()
        async with broker(files=files) as counted:
            await counted.create_topic("Orders")
        assert files.count > 0
    """

    def __init__(self) -> None:
        """Start without open descriptors."""
        self._paths: dict[int, Path] = {}

    def before(self, name: str, path: Path) -> None:
        """Runs before a call; may raise instead of it.

        Example:
            class Forbid(HookedFiles):
                def before(self, name: str, path: Path) -> None:
                    if name == "unlink":
                        raise PermissionError(path)
        """

    def before_write(self, fd: int, data: Buffer, position: int) -> None:  # noqa: ARG002
        """Runs before a write, also by compiled code; may raise instead of it.

        Example:
            class Sum(HookedFiles):
                written_bytes = 0

                def before_write(self, fd: int, data: bytes, position: int) -> None:
                    super().before_write(fd, data, position)
                    self.written_bytes += len(data)
        """
        self._before("write_at", fd)

    def _before_read(self, fd: int, size_bytes: int, position: int) -> None:  # noqa: ARG002
        self._before("read_cached_at", fd)

    def _before(self, name: str, fd: int) -> None:
        self.before(name, self._paths.get(fd, Path("?")))

    @property
    def write_hook(self) -> WriteHook:
        """As :attr:`Files.write_hook`."""
        return self.before_write

    @property
    def read_hook(self) -> ReadHook:
        """As :attr:`Files.read_hook`."""
        return self._before_read

    def exists(self, path: Path) -> bool:
        """As :meth:`Files.exists`."""
        self.before("exists", path)
        return super().exists(path)

    def is_dir(self, path: Path) -> bool:
        """As :meth:`Files.is_dir`."""
        self.before("is_dir", path)
        return super().is_dir(path)

    def list_dir(self, path: Path) -> list[str]:
        """As :meth:`Files.list_dir`."""
        self.before("list_dir", path)
        return super().list_dir(path)

    def size_bytes(self, path: Path) -> int:
        """As :meth:`Files.size_bytes`."""
        self.before("size_bytes", path)
        return super().size_bytes(path)

    def modified_ms(self, path: Path) -> int:
        """As :meth:`Files.modified_ms`."""
        self.before("modified_ms", path)
        return super().modified_ms(path)

    def make_dir(self, path: Path) -> None:
        """As :meth:`Files.make_dir`."""
        self.before("make_dir", path)
        super().make_dir(path)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """As :meth:`Files.open`."""
        self.before("create" if create else "open", path)
        fd = super().open(path, write=write, create=create)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        """As :meth:`Files.close`; the descriptor is closed even when this raises."""
        path = self._paths.pop(fd, Path("?"))
        super().close(fd)
        self.before("close", path)

    def length(self, fd: int) -> int:
        """As :meth:`Files.length`."""
        self._before("length", fd)
        return super().length(fd)

    def allocate(self, fd: int, size_bytes: int) -> None:
        """As :meth:`Files.allocate`."""
        self._before("allocate", fd)
        super().allocate(fd, size_bytes)

    def truncate(self, fd: int, size_bytes: int) -> None:
        """As :meth:`Files.truncate`."""
        self._before("truncate", fd)
        super().truncate(fd, size_bytes)

    def zero_range(self, fd: int, start: int, end: int) -> None:
        """As :meth:`Files.zero_range`."""
        self._before("zero_range", fd)
        super().zero_range(fd, start, end)

    def punch(self, fd: int, start: int, end: int) -> None:
        """As :meth:`Files.punch`."""
        self._before("punch", fd)
        super().punch(fd, start, end)

    def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
        """As :meth:`Files.read_at`."""
        self._before("read_at", fd)
        return super().read_at(fd, size_bytes, position)

    def read_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """As :meth:`Files.read_into`."""
        self._before("read_into", fd)
        return super().read_into(fd, buffer, position)

    def read_cached_at(self, fd: int, size_bytes: int, position: int) -> bytes | None:
        """As :meth:`Files.read_cached_at`."""
        self._before_read(fd, size_bytes, position)
        return super().read_cached_at(fd, size_bytes, position)

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        """As :meth:`Files.write_at`."""
        self.before_write(fd, data, position)
        super().write_at(fd, data, position)

    def data_sync(self, fd: int) -> None:
        """As :meth:`Files.data_sync`."""
        self._before("data_sync", fd)
        super().data_sync(fd)

    def sync_dir(self, path: Path) -> None:
        """As :meth:`Files.sync_dir`."""
        self.before("sync_dir", path)
        super().sync_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        """As :meth:`Files.rename`."""
        self.before("rename", source)
        super().rename(source, target)

    def exchange(self, first: Path, second: Path) -> None:
        """As :meth:`Files.exchange`."""
        self.before("exchange", first)
        super().exchange(first, second)

    def unlink(self, path: Path) -> None:
        """As :meth:`Files.unlink`."""
        self.before("unlink", path)
        super().unlink(path)

    def remove_dir(self, path: Path) -> None:
        """As :meth:`Files.remove_dir`."""
        self.before("remove_dir", path)
        super().remove_dir(path)

    def map(self, fd: int, size_bytes: int, *, write: bool) -> Mapping:
        """As :meth:`Files.map`."""
        self._before("map", fd)
        return super().map(fd, size_bytes, write=write)

    def disk_usage(self, path: Path) -> DiskUsage:
        """As :meth:`Files.disk_usage`."""
        self.before("disk_usage", path)
        return super().disk_usage(path)
