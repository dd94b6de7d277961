"""Names in settings load code, or give an error that says why not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.errors import ConfigError, StoreLocked
from roquet.runtime.plugin import PluginName
from tests.unit.runtime.plugin_kit import GROUP, Installed

MODULE = """
class Outer:
    class Inner:
        pass

THING = object()
"""


@pytest.fixture(name="installed")
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path / "site", monkeypatch)


def name(text: str) -> PluginName:
    return PluginName(text, setting="rpcHooks", group=GROUP)


def test_an_object_in_a_module(installed: Installed) -> None:
    installed.module("placed", MODULE)
    assert name("placed:THING").load() is sys.modules["placed"].THING
    assert getattr(name("placed:Outer.Inner").load(), "__name__", "") == "Inner"


def test_an_entry_point_of_an_installed_distribution(installed: Installed) -> None:
    installed.distribution("dist-one", "pointed", MODULE, {GROUP: {"thing": "pointed:THING"}})
    assert name("thing").load() is sys.modules["pointed"].THING


def test_a_distribution_found_twice_is_not_ambiguous(installed: Installed) -> None:
    for project in ("dist-one", "dist-two"):
        installed.distribution(project, "shared", MODULE, {GROUP: {"thing": "shared:THING"}})
    assert name("thing").load() is sys.modules["shared"].THING


def test_a_name_that_two_distributions_have_is_refused(installed: Installed) -> None:
    installed.distribution("dist-one", "one", MODULE, {GROUP: {"thing": "one:THING"}})
    installed.distribution("dist-two", "two", MODULE, {GROUP: {"thing": "two:THING"}})
    with pytest.raises(ConfigError) as raised:
        name("thing").load()
    assert raised.value.detail == "several distributions have that name: one:THING, two:THING"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("other", "no entry point of that name; installed are: another, thing"),
        ("thing", "ZeroDivisionError: division by zero"),
        ("another", "AttributeError: module 'fine' has no attribute 'Missing'"),
        ("broken:Name", "ZeroDivisionError: division by zero"),
        ("leaving:Name", "SystemExit: good-bye"),
        ("garbled:Name", "SyntaxError: "),
        ("no.such:Name", "ModuleNotFoundError: No module named 'no'"),
        ("fine:", "AttributeError: module 'fine' has no attribute ''"),
        (":Name", "ValueError: Empty module name"),
    ],
)
def test_plug_ins_that_cannot_be_loaded_are_reported(
    installed: Installed, text: str, detail: str
) -> None:
    points = {"thing": "broken:Name", "another": "fine:Missing"}
    installed.distribution("dist-one", "broken", "1 / 0", {GROUP: points})
    installed.module("fine", MODULE)
    installed.module("leaving", "raise SystemExit('good-bye')")
    installed.module("garbled", "def")
    with pytest.raises(ConfigError) as raised:
        name(text).load()
    error = raised.value
    assert error.message == f"rpcHooks names {text!r}, which cannot be used."
    assert (error.detail or "").startswith(detail)
    assert GROUP in (error.hint or "")
    assert (error.code, error.exit_code) == ("plugin", 2)


def test_nothing_is_installed() -> None:
    with pytest.raises(ConfigError) as raised:
        name("thing").load()
    assert raised.value.detail == "no entry point of that name; installed are: none"


def fail(error: BaseException) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_creating_a_plug_in() -> None:
    assert name("x").make(lambda: 7) == 7
    with pytest.raises(ConfigError) as raised:
        name("x").make(fail(RuntimeError("no key")))
    assert raised.value.detail == "RuntimeError: no key"
    with pytest.raises(StoreLocked):
        name("x").make(fail(StoreLocked("in use")))
    with pytest.raises(KeyboardInterrupt):
        name("x").make(fail(KeyboardInterrupt()))
