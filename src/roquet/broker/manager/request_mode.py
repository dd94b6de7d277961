"""How groups request the messages of topics, kept in ``messageRequestMode.json``.

Owns upstream's table of groups that consume by POP or by pulling, by topic and group. Nothing in
this broker changes or uses an entry: it loads what a Java broker left in the file, copies it from
a master, and returns it to slaves, so that the table survives while Roquet has the store.

The file exists only if there is an entry. The table has no version, as in upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import ConfigManager, config_path, decode_table
from roquet.model.fastjson import dumps
from roquet.remoting.bodies.client import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["RequestModeManager"]

_FILE_NAME = "messageRequestMode.json"

RequestModes = Mapping[str, dict[str, SetMessageRequestModeRequestBody]]


def _decode(text: str) -> MessageRequestModeSerializeWrapper:
    return decode_table(MessageRequestModeSerializeWrapper, text)


class RequestModeManager(ConfigManager[MessageRequestModeSerializeWrapper]):
    """The request modes.

    Args:
        file: Their file; see :meth:`at`.
        clock: The time.

    Attributes:
        table: The modes by topic and group; read only.
    """

    def __init__(self, file: ConfigFile[MessageRequestModeSerializeWrapper], clock: Clock) -> None:
        super().__init__(file, clock)
        self.table: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self._written_edits = self._edits

    @classmethod
    def at(cls, config: BrokerConfig, files: Files, clock: Clock) -> RequestModeManager:
        """Return the modes in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(file, clock)

    def adopt(self, table: RequestModes) -> None:
        """Become a copy of a master's table."""
        if self.table != table:
            self.table = dict(table)
            self._adopt_version(None)

    def to_body(self) -> MessageRequestModeSerializeWrapper:
        """Return the table as the body of a response."""
        return MessageRequestModeSerializeWrapper(message_request_mode_map=self.table)

    def _take(self, loaded: MessageRequestModeSerializeWrapper) -> bool:
        self.table = dict(loaded.message_request_mode_map)
        return False

    def _snapshot(self) -> MessageRequestModeSerializeWrapper:
        return self.to_body()

    def _pieces(self, snapshot: MessageRequestModeSerializeWrapper) -> Iterable[bytes]:
        return (dumps(msgspec.to_builtins(snapshot), pretty=True).encode(),)
