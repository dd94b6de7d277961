"""Clients without sockets, and a disk that can be full."""

from __future__ import annotations

import errno
import logging
from typing import cast

import pytest

from roquet.broker.manager.client_channel import ClientChannel
from roquet.remoting.codes import LanguageCode
from roquet.remoting.connection import Connection
from roquet.runtime.files import Buffer, Files


class FillingDisk(Files):
    """A disk on which nothing can be written while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.writes = 0

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.writes += 1
        super().write_at(fd, data, position)


class FakeConnection:
    """A distinguishable connection that can be closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def connection() -> Connection:
    return cast("Connection", FakeConnection())


def channel(client_id: str = "c1", on: Connection | None = None) -> ClientChannel:
    return ClientChannel(
        connection=connection() if on is None else on,
        client_id=client_id,
        language=LanguageCode.JAVA,
        version=433,
        last_update_ns=0,
    )


class Calls:
    """Counts how often it was called."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
