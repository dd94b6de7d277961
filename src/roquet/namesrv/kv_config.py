"""Values by namespace and key, kept in ``kvConfig.json``.

Owns the table and the form of its file, which is one line as upstream writes it:

.. code-block:: text

    {"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4"}}}

Invariants:

* A change is in the file before anybody sees it; if the file cannot be written, nothing changed.
  Upstream logs the failure and answers that all is well.
* The file never exceeds :data:`KV_CONFIG_BYTES_MAX`.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct, field

from roquet.errors import ConfigError
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


class KVConfigManager:
    """The values.

    Args:
        file: Where they are kept; none: in memory only.
    """

    def __init__(self, file: ConfigFile[ConfigTable] | None = None) -> None:
        self._file = file
        self._table: ConfigTable = {}

    @classmethod
    def at(cls, path: Path, files: Files) -> KVConfigManager:
        """Values that are kept in a file."""
        return cls(ConfigFile(path, files, decode=_decode))

    def load(self) -> ConfigError | None:
        """Read the file.

        Returns:
            What is wrong with it, if its backup was used.

        Raises:
            ConfigError: Neither the file nor its backup can be used.
            StoreError: The file cannot be read.
        """
        loaded = None if self._file is None else self._file.load()
        if loaded is None:
            return None
        self._table = loaded.value
        return loaded.problem

    def get(self, namespace: str, key: str) -> str | None:
        """One value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> MappingProxyType[str, str] | None:
        """The values of a namespace, which may have none left; ``None`` if it never had one."""
        table = self._table.get(namespace)
        return None if table is None else MappingProxyType(table)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            ConfigError: There are too many values.
            StoreError: It could not be kept.
        """
        self._change(namespace, {**self._table.get(namespace, {}), key: value})

    def delete(self, namespace: str, key: str) -> None:
        """Drop a value, if it is there.

        Raises:
            StoreError: That could not be kept.
        """
        table = self._table.get(namespace)
        if table is not None and key in table:
            self._change(namespace, {name: text for name, text in table.items() if name != key})

    def _change(self, namespace: str, values: dict[str, str]) -> None:
        table = {**self._table, namespace: values}
        data = encode_body(KVConfigSerializeWrapper(config_table=table))
        if len(data) > KV_CONFIG_BYTES_MAX:
            raise ConfigError(
                "There are too many values.",
                code="kv_config_full",
                detail=f"They would take {len(data)} of {KV_CONFIG_BYTES_MAX} bytes.",
                hint="Delete values that are no longer used.",
            )
        if self._file is not None:
            self._file.save(data.decode())
        self._table = table
