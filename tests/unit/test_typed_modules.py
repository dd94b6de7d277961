"""Modules that are compiled from their Python source declare every attribute of their classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import roquet

PACKAGE = Path(roquet.__file__).parent
CLASS = re.compile(r"^cdef class (\w+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"^    cdef (?:public |readonly )?[\w\[\]:.]+ (\w+)$", re.MULTILINE)


def typed_sources() -> Iterator[Path]:
    """Every ``.py`` that has a ``.pxd`` beside it."""
    return (path for path in sorted(PACKAGE.rglob("*.py")) if path.with_suffix(".pxd").exists())


def declared(types: str) -> dict[str, set[str]]:
    """The attributes that a ``.pxd`` declares, by class."""
    _, *pieces = CLASS.split(types)
    return {
        name: set(ATTRIBUTE.findall(body))
        for name, body in zip(pieces[::2], pieces[1::2], strict=True)
    }


def assigned(class_: ast.ClassDef) -> set[str]:
    """The attributes that a class sets on its instances."""
    return {
        node.attr
        for node in ast.walk(class_)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


@pytest.mark.parametrize("source", [pytest.param(path, id=path.stem) for path in typed_sources()])
def test_every_attribute_has_a_type(source: Path) -> None:
    classes = {
        node.name: node
        for node in ast.parse(source.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    for name, attributes in declared(source.with_suffix(".pxd").read_text("utf-8")).items():
        assert attributes == assigned(classes[name]), f"see {name} in {source.stem}.pxd"


def test_typed_modules_are_found() -> None:
    assert sum(1 for _ in typed_sources()) > 20
