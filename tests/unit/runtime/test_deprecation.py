"""Old public names work for one version, with a warning that gives the new name."""

from __future__ import annotations

import importlib

import pytest

RENAMED = [
    ("roquet.admin", "Gathered", "ServerResults"),
    ("roquet.client", "ConsumerFace", "ConsumerCallbacks"),
    ("roquet.client", "ProducerFace", "ProducerCallbacks"),
    ("roquet.sync", "Gathered", "ServerResults"),
]


@pytest.mark.parametrize(("module", "old", "new"), RENAMED)
def test_an_old_name_gives_the_new_one_with_a_warning(module: str, old: str, new: str) -> None:
    package = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"^{module}.{old} is deprecated, use .*{new}$"):
        found = getattr(package, old)
    assert found is getattr(package, new)
    assert old not in package.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = importlib.import_module("roquet.client").Nothing
