"""The interface and its implementations.

That the types match is checked by mypy, for this file too.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from roquet.store import message_store
from roquet.store.message_store import (
    ExtensionPoints,
    Health,
    Lifecycle,
    Maintenance,
    MessageGet,
    MessageLookup,
    MessagePut,
    MessageStore,
    QueueOffsets,
    Replication,
    TimeLookup,
)
from roquet.store.plugin import PluginMessageStore
from tests.unit.store.kit import new_store

PARTS = (
    Lifecycle,
    MessagePut,
    MessageGet,
    QueueOffsets,
    TimeLookup,
    MessageLookup,
    Replication,
    Maintenance,
    Health,
    ExtensionPoints,
)


def members(part: type) -> set[str]:
    return {name for name in vars(part) if not name.startswith("_")}


EVERYTHING = sorted({name for part in PARTS for name in members(part)})


def test_the_default_store_fits(tmp_path: Path) -> None:
    store: MessageStore = new_store(tmp_path)
    parts: tuple[Lifecycle, MessagePut, MessageGet, QueueOffsets, TimeLookup] = (store,) * 5
    more: tuple[MessageLookup, Replication, Maintenance, Health, ExtensionPoints] = (store,) * 5
    assert len(parts + more) == len(PARTS)


def test_a_plug_in_fits(tmp_path: Path) -> None:
    store: MessageStore = PluginMessageStore(new_store(tmp_path))
    assert isinstance(store, PluginMessageStore)


def test_parts_do_not_overlap_and_form_the_whole() -> None:
    assert sum(len(members(part)) for part in PARTS) == len(EVERYTHING)
    assert set(PARTS) <= set(MessageStore.__mro__)
    protocols = [
        value
        for value in vars(message_store).values()
        if inspect.isclass(value) and value.__module__ == message_store.__name__
    ]
    assert set(protocols) == {*PARTS, MessageStore}


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_member_exists(tmp_path: Path, name: str) -> None:
    store = new_store(tmp_path)
    assert hasattr(store, name)
    assert hasattr(PluginMessageStore(store), name)


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_member_has_the_same_parameters(tmp_path: Path, name: str) -> None:
    part = next(part for part in PARTS if name in members(part))
    promised = vars(part)[name]
    if isinstance(promised, property):
        return
    expected = inspect.signature(promised)
    actual = inspect.signature(getattr(new_store(tmp_path), name))
    for parameter in list(expected.parameters.values())[1:]:
        assert actual.parameters[parameter.name] == parameter
    extra = set(actual.parameters) - set(expected.parameters)
    assert all(actual.parameters[name].default is not inspect.Parameter.empty for name in extra)
