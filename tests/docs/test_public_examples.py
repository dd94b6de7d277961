"""Every public name has a docstring with an example, and every example runs.

Examples after ``>>>`` are run by ``test_doctests.py``. The others are run here, with the names of
``example_names.py`` around them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import roquet.admin
import roquet.client
import roquet.sync
import roquet.testing.background
import roquet.testing.fault_proxy
import roquet.testing.files
import roquet.testing.history
import roquet.testing.pytest_plugin
from roquet.runtime.files import Files
from tests.docs import example_names
from tests.docs.example_kit import Example, run

PUBLIC_MODULES = (
    roquet.client,
    roquet.admin,
    roquet.sync,
    importlib.import_module("roquet.testing.broker"),  # the name is the function's
    roquet.testing.background,
    roquet.testing.fault_proxy,
    roquet.testing.files,
    roquet.testing.history,
    roquet.testing.pytest_plugin,
)


def code_of(text: str | None) -> str:
    return textwrap.dedent((text or "").partition("Example:\n")[2])


def members_of(kind: type) -> Iterator[tuple[str, str]]:
    """The public methods of a class, with the example of their own or of what they override.

    Those of the file system of ``roquet.runtime``, which stand-ins override, are not theirs.
    """
    own = [each for each in kind.__mro__ if each.__module__.startswith("roquet.")]
    for member in dict.fromkeys(name for each in own for name in vars(each)):
        value = inspect.getattr_static(kind, member)
        is_method = inspect.isfunction(value) or isinstance(
            value, (property, classmethod, staticmethod)
        )
        is_of_files = issubclass(kind, Files) and hasattr(Files, member)
        if is_method and not member.startswith("_") and not is_of_files:
            defined = [getattr(each, member) for each in own if member in vars(each)]
            codes = [code_of(inspect.getdoc(each)) for each in defined]
            yield member, next(filter(str.strip, codes), "")


def described_in_source(package: str, name: str) -> str:
    """The docstring below an assignment, or in a function that a decorator has hidden."""
    root = importlib.import_module(f"roquet.{package}")
    for found in pkgutil.iter_modules(root.__path__):
        path = Path(root.__path__[0]) / f"{found.name}.py"
        if not path.is_file():  # compiled, or a package
            continue
        body = ast.parse(path.read_text("utf-8")).body
        for node, after in pairwise([*body, ast.Pass()]):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return ast.get_docstring(node) or ""
            target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
            if isinstance(node, ast.Assign):
                target = node.targets[0]
            if (isinstance(target, ast.Name) and target.id == name) and (
                isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            ):
                return inspect.cleandoc(str(after.value.value))
    return ""


def examples_of(module: ModuleType) -> Iterator[Example]:
    package = module.__name__.split(".")[1]
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) and not value.__module__.startswith("roquet.client.lifetime"):
            yield Example(package, name, code_of(inspect.getdoc(value)))
            for member, code in members_of(value):
                yield Example(package, f"{name}.{member}", code)
        elif inspect.isfunction(value):
            yield Example(package, name, code_of(inspect.getdoc(value)))
        elif package != "sync":
            yield Example(package, name, code_of(described_in_source(package, name)))


def is_exported_elsewhere(example: Example) -> bool:
    """Values of ``roquet.sync`` are those of the other packages, whose examples await."""
    value = getattr(roquet.sync, example.name.partition(".")[0], None)
    return example.package == "sync" and not getattr(value, "__module__", "").startswith(
        "roquet.sync"
    )


EXAMPLES = [
    example
    for module in PUBLIC_MODULES
    for example in examples_of(module)
    if not is_exported_elsewhere(example)
]
RUN: dict[str, list[Example]] = {}
for _example in sorted(EXAMPLES, key=lambda each: each.name.endswith((".close", ".stop"))):
    if ">>>" not in _example.code:
        _class = f"{_example.package}.{_example.name.partition('.')[0]}"
        RUN.setdefault(_class, []).append(_example)


def test_all_kinds_of_names_are_collected() -> None:
    names = {(each.package, each.name) for each in EXAMPLES}
    assert {
        ("client", "Producer.send"),
        ("client", "Handler"),
        ("admin", "Topics.create"),
        ("sync", "Producer.send"),
        ("sync", "Producer.start"),
        ("sync", "Producer.close"),
        ("sync", "Topics.create"),
        ("testing", "broker"),
        ("testing", "roquet_broker"),
    } <= names


def test_every_public_name_has_an_example() -> None:
    without = [f"{each.package}.{each.name}" for each in EXAMPLES if not each.code.strip()]
    assert without == []


@pytest.mark.parametrize("name", RUN)
async def test_every_example_runs(name: str) -> None:
    with example_names.server() as plain:
        for example in RUN[name]:
            try:
                await run(example, plain)
            except BaseException as error:
                error.add_note(f"In the example of {example.name}:\n{example.code}")
                raise
