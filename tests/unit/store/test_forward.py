from __future__ import annotations

from typing import Protocol

import pytest

from roquet.store.forward import NotForwarded, forwards, members


class Reads(Protocol):
    def read(self, offset: int, *, size_bytes: int = 1) -> str:  # noqa: ARG002
        """Read something."""
        raise NotForwarded

    @property
    def end(self) -> int:
        """Where it ends."""
        raise NotForwarded


class Writes(Protocol):
    def write(self, data: str) -> int:  # noqa: ARG002
        """Write something."""
        raise NotForwarded


class Both(Reads, Writes, Protocol):
    """Both of them."""


class Memory:
    def __init__(self) -> None:
        self.data = ""

    def read(self, offset: int, *, size_bytes: int = 1) -> str:
        return self.data[offset : offset + size_bytes]

    @property
    def end(self) -> int:
        return len(self.data)

    def write(self, data: str) -> int:
        self.data += data
        return len(data)


@forwards("memory", Both)
class Front(Both):
    def __init__(self, memory: Both) -> None:
        self.memory = memory


class Shouting(Front):
    def write(self, data: str) -> int:
        return super().write(data.upper())

    @property
    def end(self) -> int:
        return super().end + 100


@forwards("memory", Reads)
class ReadOnly(Both):
    def __init__(self, memory: Reads) -> None:
        self.memory = memory


def test_calls_and_properties_are_forwarded() -> None:
    front = Front(Memory())
    assert front.write("abc") == 3
    assert front.read(1, size_bytes=2) == "bc"
    assert front.end == 3


def test_a_subclass_overrides_and_calls_the_next() -> None:
    front = Front(Shouting(Memory()))
    front.write("abc")
    assert front.read(0, size_bytes=3) == "ABC"
    assert front.end == 103


def test_the_attribute_may_be_replaced() -> None:
    front = Front(Memory())
    front.memory = Memory()
    front.memory.write("x")
    assert front.end == 1


def test_a_member_that_nothing_provides_raises() -> None:
    with pytest.raises(NotForwarded):
        ReadOnly(Memory()).write("abc")


def test_members_of_joined_interfaces() -> None:
    assert [name for name, _ in members(Both)] == ["read", "end", "write"]
    assert Front.read.__doc__ == "Read something."
