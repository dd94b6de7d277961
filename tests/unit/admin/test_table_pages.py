"""Tables that are read page by page, even while they change."""

from __future__ import annotations

import pytest

from roquet.admin.table_pages import STARTS_MAX, read_pages
from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.command import RemotingCommand

Page = tuple[DataVersion, dict[str, int]]


class Server:
    """A broker with pages of three entries."""

    def __init__(self, entries: int, *, is_old: bool = False) -> None:
        self.table = {f"{number:03}": number for number in range(entries)}
        self.version = DataVersion(counter=1)
        self.is_old = is_old
        self.asked: list[tuple[int, str]] = []
        self.moves_at: set[int] = set()

    async def ask(self, first: int, version: str) -> RemotingCommand:
        if len(self.asked) in self.moves_at:
            self.version = DataVersion(counter=self.version.counter + 1)
            self.table[f"new-{len(self.asked)}"] = 0
        self.asked.append((first, version))
        if version != encode_body(self.version).decode():
            first = 0
        names = sorted(self.table) if self.is_old else sorted(self.table)[first : first + 3]
        fields = {} if self.is_old else {"total": str(len(self.table))}
        body = " ".join([str(self.version.counter), *names]).encode()
        return RemotingCommand(code=0, ext_fields=fields, body=body)

    def decode(self, body: bytes) -> Page:
        counter, *names = body.decode().split()
        return DataVersion(counter=int(counter)), {name: self.table[name] for name in names}

    async def read(self) -> dict[str, int]:
        return await read_pages(self.ask, self.decode, "total")


@pytest.mark.parametrize("entries", [0, 1, 3, 4, 9, 10])
async def test_all_pages_are_read(entries: int) -> None:
    server = Server(entries)
    assert await server.read() == server.table
    assert len(server.asked) == max(1, -(-entries // 3))
    assert server.asked[0] == (0, "")
    for _, version in server.asked[1:]:
        assert decode_body(DataVersion, version.encode()) == server.version


async def test_a_table_that_changed_is_read_again() -> None:
    server = Server(10)
    server.moves_at = {2}
    assert await server.read() == server.table
    assert [first for first, _ in server.asked] == [0, 3, 6, 3, 6, 9]


async def test_a_table_that_keeps_changing_is_an_error() -> None:
    server = Server(10)
    server.moves_at = set(range(1_000))
    with pytest.raises(ProtocolError, match="changes faster than it can be read"):
        await server.read()
    assert len(server.asked) == STARTS_MAX


async def test_an_old_broker_sends_all_at_once() -> None:
    server = Server(10, is_old=True)
    assert await server.read() == server.table
    assert len(server.asked) == 1
