"""The file systems that lakes are on: how an address is opened, and how a file gets there.

========================================== ============================ =====================
address                                    through                      how a file appears
========================================== ============================ =====================
a folder, ``file://``                      pyarrow                      by a rename
``hdfs://``, ``viewfs://``                 hdfs-native                  by a rename
``s3://`` (``s3a://``), ``gs://``          pyarrow                      by the upload's end
``abfs://``, ``abfss://``                  pyarrow                      by a rename
others                                     fsspec, if it knows them     by a rename
========================================== ============================ =====================

Invariants:

* A file is whole as soon as it has its name, and a new version replaces it in one step. Object
  stores copy on a rename, so a file goes there in one upload instead, which shows nothing until it
  ends; what an upload that was cut has left there is no object.
* A file of HDFS is synced before it gets its name; those of a folder are when ``tier`` needs it.
* A failure of the file system is a :class:`~roquet.errors.SparkError` that names the lake. Names
  and errors never contain the password of an address.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from roquet.errors import SparkError, SparkMissing, SparkOptionError

__all__ = [
    "UNFINISHED",
    "NewFile",
    "Place",
    "is_local",
    "public_address",
    "publish_all",
    "scheme_of",
]

UNFINISHED = ".tmp"
"""The suffix of unfinished files; their names begin with a dot, so no reader sees them."""

_UPLOADING = frozenset({"s3", "gs", "gcs"})
"""Where an upload shows nothing until it ends; of Azure's that is not so."""

_OF_PYARROW = _UPLOADING | {"file", "abfs", "abfss"}
_UPLOADS_MAX = 8
_SECRETS = re.compile(r"([^?&=]*(?:secret|token|sig|key|password)[^?&=]*)=[^&]*", re.IGNORECASE)
_HADOOP_OPTIONS = {"dfs.client.failover.max.attempts": "7"}
"""A minute for a NameNode that does not answer, instead of three."""

_FAILURES = (OSError, pa.ArrowException, RuntimeError)
"""What file systems raise; the last one is hdfs-native's."""

_OF_HADOOP = frozenset({"hdfs", "viewfs"})


def scheme_of(address: str) -> str:
    """Return the scheme of an address; empty for a folder.

    Example:
        >>> scheme_of("s3a://lake/orders"), scheme_of("/lake")
        ('s3', '')
    """
    scheme = address.partition("://")[0].lower() if "://" in address else ""
    return "s3" if scheme in {"s3a", "s3n"} else scheme


def is_local(address: str) -> bool:
    """Whether an address is one of this machine.

    Example:
        >>> is_local("/lake"), is_local("file:///lake"), is_local("s3://lake")
        (True, True, False)
    """
    return scheme_of(address) in {"", "file"}


def public_address(address: str) -> str:
    """Return an address without passwords, keys and tokens.

    Example:
        >>> public_address("s3://key:secret@lake/orders?region=eu-west-1")
        's3://lake/orders?region=eu-west-1'
        >>> public_address("abfs://lake:secret@account.dfs.core.windows.net/orders")
        'abfs://lake@account.dfs.core.windows.net/orders'
        >>> public_address("s3://key:a/slash@lake/orders")
        's3://lake/orders'
    """
    scheme, mark, rest = address.partition("://")
    if not mark:
        return address
    host, slash, path = rest.partition("/")
    if "@" in path and _has_cut_password(scheme_of(address), host):
        host, slash, path = rest.rpartition("@")[2].partition("/")
    user, at, host = host.rpartition("@")
    if at and scheme.lower().startswith("abfs"):  # before the @ is a container
        host = f"{user.partition(':')[0]}@{host}"
    return _SECRETS.sub(r"\1=…", f"{scheme}://{host}{slash}{path}")


def _has_cut_password(scheme: str, host: str) -> bool:
    """Whether a password with a slash, which is not escaped, ends what looks like a host."""
    port = host.rpartition(":")[2]
    is_port = port.isdecimal() and scheme not in _UPLOADING
    return ":" in host and "@" not in host and not is_port


def _without_secrets(text: str, address: str) -> str:
    """Return a text that may quote an address, with the public one instead."""
    rest, public = (each.partition("://")[2] for each in (address, public_address(address)))
    return text.replace(rest, public) if rest else text


class Place:
    """A folder at an address: of this machine, or of a file system or object store.

    Args:
        address: A folder, or a URI.

    Attributes:
        address: The address as given.
        name: The address for people, without a password.
        filesystem: Its file system.
        base: Its path there.
        is_uploading: Whether files appear by the end of an upload, not by a rename.

    Raises:
        SparkOptionError: The address is invalid, or its file system refuses it.
        SparkMissing: A package is missing for it.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.name = public_address(address)
        self.is_uploading = scheme_of(address) in _UPLOADING
        try:
            self.filesystem, self.base = _open(address)
        except (ValueError, *_FAILURES) as error:
            raise SparkOptionError(
                f"{self.name!r} is not a valid address for a lake.",
                detail=" ".join(_without_secrets(str(error), address).split()),
                hint="Name a folder, or a URI such as s3://bucket/path. In a key or password, write"
                " %2F for a slash.",
            ) from None

    def path(self, *parts: str) -> str:
        """Return a path of the file system, for one below the address."""
        return posixpath.join(self.base, *parts)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Turn a failure of the file system within the block into an error that names it.

        Raises:
            SparkError: It failed. A missing file stays a ``FileNotFoundError``, a damaged one an
                ``ArrowInvalid``.
        """
        try:
            yield
        except (FileNotFoundError, pa.ArrowInvalid):
            raise
        except _FAILURES as error:
            raise SparkError(
                f"The lake {self.name} cannot be read or written.",
                detail=" ".join(str(error).split()),
                hint=_hint(str(error)),
            ) from None

    def publish(self, data: bytes, *parts: str) -> None:
        """Write a small file atomically."""
        final = self.path(*parts)
        with self.told():
            if self.is_uploading:
                self._upload(pa.py_buffer(data), final)
                return
            folder, name = posixpath.split(final)
            self.filesystem.create_dir(folder)
            made = posixpath.join(folder, f".{name}{UNFINISHED}")
            with self.filesystem.open_output_stream(made) as stream:
                stream.write(data)
            self.filesystem.move(made, final)

    def _upload(self, data: pa.Buffer, path: str) -> None:
        """Write a whole object; it is one call, so nothing can end it halfway as if it were all."""
        with self.filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def read(self, *parts: str) -> bytes | None:
        """Return the content of a small file; ``None`` if there is none."""
        try:
            with self.told(), self.filesystem.open_input_stream(self.path(*parts)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def has(self, *parts: str) -> bool:
        """Whether a file or folder exists."""
        with self.told():
            info = self.filesystem.get_file_info(self.path(*parts))
        return info.type is not pafs.FileType.NotFound

    def size_bytes(self, path: str) -> int:
        """Return the size of a file."""
        with self.told():
            return int(self.filesystem.get_file_info(self.path(path)).size)

    def delete(self, *parts: str) -> None:
        """Delete a file."""
        with self.told():
            self.filesystem.delete_file(self.path(*parts))

    def below(self, *parts: str, is_deep: bool = False) -> list[pafs.FileInfo]:
        """Return what is in a folder, with ``is_deep`` also in those below; nothing without it."""
        selector = pafs.FileSelector(self.path(*parts), allow_not_found=True, recursive=is_deep)
        with self.told():
            found: list[pafs.FileInfo] = self.filesystem.get_file_info(selector)
        return found

    def new_file(self, path: str, made: str) -> NewFile:
        """Begin a file that nobody sees until it is published.

        Args:
            path: Its path below the address.
            made: The run's id, by which its unfinished files are found. Each has a name of its own:
                Spark may run a task twice at a time.
        """
        if not self.is_uploading:
            folder, name = posixpath.split(self.path(path))
            hidden = f".{name}.{uuid.uuid4().hex[:8]}.{made}{UNFINISHED}"
            hidden = posixpath.join(folder, hidden)
            with self.told():
                self.filesystem.create_dir(folder)
            return NewFile(self, path, hidden, self.filesystem)
        with tempfile.NamedTemporaryFile(prefix="roquet-lake-", delete=False) as made_here:
            return NewFile(self, path, made_here.name, pafs.LocalFileSystem())

    @contextmanager
    def parquet(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a Parquet file of the place.

        Raises:
            FileNotFoundError: There is none.
        """
        opened = pq.ParquetFile(self.path(path), filesystem=self.filesystem)
        with opened:
            yield opened


@dataclass
class NewFile:
    """A file that is being written.

    Attributes:
        place: Where it will be.
        path: Its path below the place's address.
        hidden: Where it is until then: beside its place under a hidden name, or on this machine.
        filesystem: The file system of ``hidden``.
        is_published: Whether it has its name.
    """

    place: Place
    path: str
    hidden: str
    filesystem: pafs.FileSystem
    is_published: bool = False

    def publish(self) -> None:
        """Give the whole file its name; one that has it is replaced."""
        place = self.place
        with place.told():
            if not place.is_uploading:
                place.filesystem.move(self.hidden, place.path(self.path))
                self.is_published = True
                return
            with pa.memory_map(self.hidden) as source:
                place._upload(source.read_buffer(), place.path(self.path))  # noqa: SLF001 - its own
        self.discard()

    @property
    def size_bytes(self) -> int:
        """The size of the whole file, before it is published."""
        with self.place.told():
            return int(self.filesystem.get_file_info(self.hidden).size)

    def discard(self) -> None:
        """Remove the file unless it has its name; what a kill leaves in the lake is swept later."""
        if not self.is_published:
            with suppress(*_FAILURES):
                self.filesystem.delete_file(self.hidden)


def publish_all(files: Sequence[NewFile]) -> None:
    """Publish files; several at a time where each is an upload that waits for a server."""
    if len(files) < 2 or not files[0].place.is_uploading:
        for file in files:
            file.publish()
        return
    with ThreadPoolExecutor(min(len(files), _UPLOADS_MAX)) as pool:
        for done in [pool.submit(file.publish) for file in files]:
            done.result()


def _open(address: str) -> tuple[pafs.FileSystem, str]:
    scheme = scheme_of(address)
    if not scheme:
        return pafs.LocalFileSystem(), posixpath.abspath(address)
    if scheme in _OF_HADOOP:
        return _open_hadoop(scheme, address)
    if scheme in _OF_PYARROW:
        filesystem, base = pafs.FileSystem.from_uri(scheme + address[address.index("://") :])
        return filesystem, _named(base.rstrip("/") or base)
    return _open_fsspec(address)


def _named(base: str) -> str:
    if not base:
        raise ValueError("It names no bucket.")
    return base


class _HadoopFiles(pafs.FSSpecHandler):
    """As fsspec has them, but files are synced, and a rename replaces the one that is there."""

    def move(self, src: str, dest: str) -> None:
        self.fs.mv(src, dest, overwrite=True)

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:  # noqa: ARG002 - Arrow's
        return pa.PythonFile(_SyncedFile(self.fs.open(path, mode="wb")), mode="w")


class _SyncedFile(io.RawIOBase):
    """A file of HDFS that is on the disks of its DataNodes once it is closed."""

    def __init__(self, file: Any) -> None:  # noqa: ANN401 - of a package that may be missing
        self._file = file
        self._has_data = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - whatever has a buffer
        self._has_data |= len(data) > 0
        return int(self._file.write(data))

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            if self._has_data:
                self._file.hsync()
        finally:
            self._file.close()


def _open_hadoop(scheme: str, address: str) -> tuple[pafs.FileSystem, str]:
    try:
        hdfs = import_module("hdfs_native.fsspec")
    except ModuleNotFoundError as error:
        raise SparkMissing(
            f"Lakes on {scheme}:// need the package hdfs-native.",
            detail=str(error),
            hint="Install it where the command runs: pip install 'roquet[hdfs]'",
        ) from None
    kind = hdfs.HdfsFileSystem if scheme == "hdfs" else hdfs.ViewfsFileSystem
    parts = urlsplit(address)

    # A user's own settings are in the files of that folder.
    options = {} if "HADOOP_CONF_DIR" in os.environ else _HADOOP_OPTIONS
    files = kind(host=parts.hostname, port=parts.port, **options)
    return pafs.PyFileSystem(_HadoopFiles(files)), posixpath.normpath(parts.path or "/")


def _open_fsspec(address: str) -> tuple[pafs.FileSystem, str]:
    try:
        fsspec = import_module("fsspec.core")
    except ModuleNotFoundError as error:
        raise SparkMissing(
            f"Lakes on {scheme_of(address)}:// need the package fsspec.",
            detail=str(error),
            hint="Install it, and its package for this file system.",
        ) from None
    try:
        files, base = fsspec.url_to_fs(address)
    except ImportError as error:
        raise SparkMissing(
            f"Lakes on {scheme_of(address)}:// need another package.",
            detail=str(error),
            hint="Install it where the command runs, and on the executors.",
        ) from None
    return pafs.PyFileSystem(pafs.FSSpecHandler(files)), base


_HINTS: Sequence[tuple[Sequence[str], str]] = (
    (
        ("ACCESS_DENIED", "Signature", "InvalidAccessKey", "403", "401", "Permission denied"),
        "Check the credentials (AWS_ACCESS_KEY_ID and so on) here and on the executors.",
    ),
    (("NO_SUCH_BUCKET", "NoSuchBucket"), "Create the bucket, or correct its name."),
    (
        ("NETWORK_CONNECTION", "curlCode", "onnection", "timed out", "SLOW_DOWN"),
        "Check the endpoint and the network, and run it again: a run continues the last one.",
    ),
)


def _hint(detail: str) -> str:
    for signs, hint in _HINTS:
        if any(sign in detail for sign in signs):
            return hint
    return "Check address, credentials and network, here and on the executors."
