"""Every class of coroutines has its blocking twin, method for method."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

import roquet.admin
import roquet.client
import roquet.sync

# Asyncio by nature: the client behind a producer or consumer, and requests to single servers.
LEFT_OUT = {"calls", "client"}

TWINS = {
    name: (getattr(module, name), getattr(roquet.sync, name))
    for module, names in (
        (
            roquet.client,
            ["Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "SimplePull"],
        ),
        (
            roquet.admin,
            [
                name
                for name in roquet.admin.__all__
                if any(
                    inspect.iscoroutinefunction(each)
                    for each in vars(getattr(roquet.admin, name)).values()
                )
            ],
        ),
    )
    for name in names
}


def public(kind: type) -> dict[str, object]:
    return {
        name: getattr(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and name not in LEFT_OUT
    }


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


def test_the_admin_areas_are_included() -> None:
    assert {"Admin", "Topics", "KvValues", "Messages", "Producer"} <= TWINS.keys()


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_same_methods_with_the_same_parameters(name: str) -> None:
    coroutines, blocking = TWINS[name]
    wanted, found = public(coroutines), public(blocking)
    assert wanted.keys() <= found.keys()
    for member, value in wanted.items():
        twin = found[member]
        assert isinstance(value, property) == isinstance(twin, property), member
        if callable(value) and callable(twin):
            assert parameters(twin) == parameters(value), member
            assert not inspect.iscoroutinefunction(twin), member
            assert not inspect.isasyncgenfunction(twin), member
            assert "await" not in (inspect.getdoc(twin) or ""), member


@pytest.mark.parametrize(
    "name",
    ["Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "SimplePull", "Admin"],
)
def test_a_twin_is_made_with_the_same_arguments(name: str) -> None:
    coroutines, blocking = TWINS[name]
    assert parameters(blocking) == parameters(coroutines)


def test_values_are_the_same_objects() -> None:
    for name in roquet.sync.__all__:
        if name not in TWINS:
            original = getattr(roquet.client, name, None) or getattr(roquet.admin, name)
            assert getattr(roquet.sync, name) is original
