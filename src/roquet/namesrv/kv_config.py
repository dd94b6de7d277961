"""Values by namespace and key, stored in ``kvConfig.json``.

Owns the table and the format of its file, which is one line as upstream writes it:

.. code-block:: text

    {"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4"}}}

Invariants:

* A change is in the file before it is visible; if the file cannot be written, nothing changes.
  Upstream logs the failure and responds with SUCCESS.
* Concurrent changes share one write of the file, in a thread. If that fails, all of them are
  dropped, because later ones may depend on earlier ones.
* The file never exceeds :data:`KV_CONFIG_BYTES_MAX`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from roquet.errors import ConfigError, StoreError
from roquet.model.fastjson import dumps
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["NAMESPACE_ORDER_TOPIC_CONFIG", "KVConfigManager", "KVConfigSerializeWrapper"]

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Where the queues of ordered topics are, by topic."""

KV_CONFIG_BYTES_MAX = 16 << 20

ConfigTable: TypeAlias = dict[str, dict[str, str]]


class KVConfigSerializeWrapper(Struct, rename="camel", kw_only=True):
    """The file: values by namespace and key."""

    config_table: ConfigTable = field(default_factory=dict)


def _decode(text: str) -> ConfigTable:
    return decode_body(KVConfigSerializeWrapper, text.encode()).config_table


class _Edit(NamedTuple):
    namespace: str
    key: str
    value: str | None


class KVConfigManager:
    """The values.

    Args:
        file: Where they are stored; ``None``: in memory only.
    """

    def __init__(self, file: ConfigFile[ConfigTable] | None = None) -> None:
        self._file = file
        self._table: ConfigTable = {}
        self._staged: list[_Edit] = []
        self._newest: dict[tuple[str, str], str | None] = {}
        self._new_namespaces: set[str] = set()
        self._size_bytes = _size_of({})
        self._changes = 0
        self._written = 0
        self._failed = 0
        self._error: StoreError | None = None
        self._writing = asyncio.Lock()

    @classmethod
    def at(cls, path: Path, files: Files) -> KVConfigManager:
        """A manager whose values are stored in a file."""
        return cls(ConfigFile(path, files, decode=_decode))

    def load(self) -> ConfigError | None:
        """Read the file.

        Returns:
            The problem with it, if its backup was used.

        Raises:
            ConfigError: Neither the file nor its backup can be used.
            StoreError: The file cannot be read.
        """
        loaded = None if self._file is None else self._file.load()
        if loaded is None:
            return None
        self._table = loaded.value
        self._size_bytes = _size_of(self._table)
        return loaded.problem

    def get(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> MappingProxyType[str, str] | None:
        """The values of a namespace, possibly none; ``None`` if it never had one."""
        table = self._table.get(namespace)
        return None if table is None else MappingProxyType(table)

    def encoded(self, namespace: str) -> bytes | None:
        """The values of a namespace as the body of a response; ``None`` if it never had one."""
        values = self.namespace(namespace)
        return None if values is None else encode_body(KVTable(table=dict(values)))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            ConfigError: There are too many values.
            StoreError: It could not be saved.
        """
        size_bytes = self._size_bytes + _bytes_of(value)
        old = self._staged_value(namespace, key)
        size_bytes += _bytes_of(key) if old is None else -_bytes_of(old)
        if namespace not in self._table and namespace not in self._new_namespaces:
            size_bytes += _namespace_bytes(namespace)
        if size_bytes > KV_CONFIG_BYTES_MAX:
            raise ConfigError(
                "There are too many values.",
                code="kv_config_full",
                detail=f"They would take {size_bytes} of {KV_CONFIG_BYTES_MAX} bytes.",
                hint="Delete values that are no longer used.",
            )
        self._size_bytes = size_bytes
        await self._change(_Edit(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value, if it exists.

        Raises:
            StoreError: The change could not be saved.
        """
        old = self._staged_value(namespace, key)
        if old is not None:
            self._size_bytes -= _bytes_of(key) + _bytes_of(old)
            await self._change(_Edit(namespace, key, None))

    def _staged_value(self, namespace: str, key: str) -> str | None:
        """A value after all staged changes."""
        if (namespace, key) in self._newest:
            return self._newest[namespace, key]
        return self.get(namespace, key)

    async def _change(self, edit: _Edit) -> None:
        self._staged.append(edit)
        self._newest[edit.namespace, edit.key] = edit.value
        self._new_namespaces.add(edit.namespace)
        self._changes += 1
        change = self._changes
        async with self._writing:
            if self._failed >= change:
                assert self._error is not None, "a failure has a reason"
                raise self._error
            if self._written < change:
                await self._write()

    async def _write(self) -> None:
        """Write all changes staged so far, then apply them."""
        last, edits = self._changes, self._staged[:]
        table = _with_edits(self._table, edits)
        if self._file is not None:
            save = partial(_save, self._file, table)
            try:
                await asyncio.get_running_loop().run_in_executor(None, save)
            except StoreError as error:
                self._failed, self._error = self._changes, error
                self._staged.clear()
                self._note_staged()
                self._size_bytes = _size_of(self._table)
                raise
        del self._staged[: len(edits)]
        self._note_staged()
        self._written = last
        self._table = table

    def _note_staged(self) -> None:
        self._newest = {(each.namespace, each.key): each.value for each in self._staged}
        self._new_namespaces = {each.namespace for each in self._staged}


def _save(file: ConfigFile[ConfigTable], table: ConfigTable) -> None:
    file.save(encode_body(KVConfigSerializeWrapper(config_table=table)).decode())


def _with_edits(table: ConfigTable, edits: Iterable[_Edit]) -> ConfigTable:
    """A changed copy of a table."""
    changed = dict(table)
    own: set[str] = set()
    for namespace, key, value in edits:
        if namespace not in own:
            own.add(namespace)
            changed[namespace] = dict(changed.get(namespace, {}))
        if value is None:
            changed[namespace].pop(key, None)
        else:
            changed[namespace][key] = value
    return changed


def _bytes_of(text: str) -> int:
    """The size of a text in the file, with one character before and after it."""
    return len(dumps(text).encode()) + 2


def _namespace_bytes(namespace: str) -> int:
    return _bytes_of(namespace) + 2


def _size_of(table: ConfigTable) -> int:
    """An upper bound for the size of the file."""
    return _namespace_bytes("configTable") + sum(
        _namespace_bytes(namespace)
        + sum(_bytes_of(key) + _bytes_of(value) for key, value in values.items())
        for namespace, values in table.items()
    )
