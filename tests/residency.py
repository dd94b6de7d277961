"""Stands in for the kernel: which pages of the log are in memory, and which are loaded."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from roquet.runtime import memory
from roquet.store.mapped_file import MappedFile

__all__ = ["patch_residency"]


class _Segments:
    """Finds the segment at an address. A segment that was found stays mapped, so nothing else can
    get its address."""

    def __init__(self) -> None:
        self._found: list[MappedFile] = []

    def at(self, address: int) -> MappedFile | None:
        segment = _holder(self._found, address)
        if segment is None:
            alive = [each for each in gc.get_objects() if type(each) is MappedFile]
            segment = _holder(alive, address)
            if segment is not None:
                self._found.append(segment)
        return segment


def _holder(segments: list[MappedFile], address: int) -> MappedFile | None:
    for each in segments:
        if each.address <= address < each.address + each.size_bytes:
            return each
    return None


def patch_residency(
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_resident: Callable[[int, int], bool] | None = None,
    make_resident: Callable[[int, int], None],
    will_need: Callable[[int, int], None] | None = None,
) -> None:
    """Call these with a physical offset and a length instead of asking the kernel about the log."""
    segments = _Segments()
    ask, bring = memory.is_resident, memory.make_resident

    def asked(address: int, size_bytes: int) -> bool:
        segment = segments.at(address)
        if segment is None or is_resident is None:
            return ask(address, size_bytes)
        return is_resident(segment.start_offset + address - segment.address, size_bytes)

    def brought(address: int, size_bytes: int) -> bool:
        segment = segments.at(address)
        if segment is None:
            return bring(address, size_bytes)
        make_resident(segment.start_offset + address - segment.address, size_bytes)
        return True

    def needed(address: int, size_bytes: int) -> bool:
        segment = segments.at(address)
        if segment is not None and will_need is not None:
            will_need(segment.start_offset + address - segment.address, size_bytes)
        return True

    monkeypatch.setattr(memory, "is_resident", asked)
    monkeypatch.setattr(memory, "will_need", needed)
    monkeypatch.setattr(memory, "make_resident", brought)
