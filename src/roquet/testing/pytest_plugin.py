"""Fixtures for pytest: a broker for every test that requests one.

Owns the names that are available wherever Roquet is installed:

.. code-block:: text

    roquet_broker           a BackgroundBroker, with blocking methods
    roquet_namesrv          the address of its name server, which clients are given
    roquet_broker_options   its settings by upstream's keys; to be overridden
    roquet_broker_scope     in the settings of pytest: how long a broker lives (function)

Invariants:

* A run of pytest that uses none of them only pays for the import of this file, which imports
  nothing but pytest: the broker is imported on demand.
* No asyncio plug-in is needed: the broker runs in a thread of its own. Tests with an event
  loop may use the fixtures as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from roquet.testing.background import BackgroundBroker

__all__ = ["roquet_broker", "roquet_broker_options", "roquet_namesrv"]

_SCOPE_SETTING = "roquet_broker_scope"
_SCOPES = ("function", "class", "module", "package", "session")
_Scope = Literal["function", "class", "module", "package", "session"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the setting."""
    parser.addini(
        _SCOPE_SETTING,
        f"How long the broker of the fixture roquet_broker lives: {', '.join(_SCOPES)}.",
        default=_SCOPES[0],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an invalid scope with a clear error, before pytest fails on it."""
    scope = config.getini(_SCOPE_SETTING)
    if scope not in _SCOPES:
        raise pytest.UsageError(
            f"{_SCOPE_SETTING} is {scope!r}, and must be one of {', '.join(_SCOPES)}."
        )


def _scope(fixture_name: str, config: pytest.Config) -> _Scope:
    del fixture_name
    return cast("_Scope", config.getini(_SCOPE_SETTING))


@pytest.fixture(scope=_scope)
def roquet_broker_options() -> Mapping[str, object]:
    """Settings of the broker by upstream's keys; override this fixture to set others.

    Example:
        @pytest.fixture
        def roquet_broker_options() -> dict[str, object]:
            return {"autoCreateTopicEnable": False}
    """
    return {}


@pytest.fixture(scope=_scope)
def roquet_broker(roquet_broker_options: Mapping[str, object]) -> Iterator[BackgroundBroker]:
    """A name server and a broker on free ports, with their data in a temporary folder.

    Example:
        def test_orders(roquet_broker: BackgroundBroker) -> None:
            roquet_broker.create_topic("Orders")
            assert roquet_broker.messages("Orders") == []
    """
    from roquet.testing.background import background_broker  # noqa: PLC0415 - see the top

    with background_broker(roquet_broker_options) as running:
        yield running


@pytest.fixture(scope=_scope)
def roquet_namesrv(roquet_broker: BackgroundBroker) -> str:
    """The address of the name server of ``roquet_broker``.

    Example:
        def test_orders(roquet_namesrv: str) -> None:
            with Producer(roquet_namesrv, group="billing") as producer:
                producer.send(Message("Orders", b"paid"))
    """
    return roquet_broker.namesrv
