import inspect
import pickle
import re

import pytest

from roquet import errors
from roquet.errors import ConfigError, DiskFull, RoquetError

ALL = [getattr(errors, name) for name in errors.__all__]


def drawn_tree() -> dict[str, str]:
    """Read the tree of the module docstring: class name -> name of its parent."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"    ((?:│   |    )*)(├── |└── )?(\w+)", line)
        if match is None:
            continue
        depth = len(match[1]) // 4 + (match[2] is not None)
        path = [*path[:depth], match[3]]
        parents[match[3]] = path[depth - 1] if depth else "Exception"
    return parents


def test_docstring_draws_the_real_tree() -> None:
    real = {cls.__name__: cls.__base__.__name__ for cls in ALL}
    assert drawn_tree() == real


def test_all_names_every_error_class_sorted() -> None:
    defined = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    ]
    assert errors.__all__ == sorted(defined)


def test_codes_are_unique() -> None:
    codes = [cls.default_code for cls in ALL]
    assert len(set(codes)) == len(codes)


def test_str_prints_message_detail_and_hint() -> None:
    error = RoquetError("It broke.", detail="offset 42", hint="Mend it.")
    assert str(error) == "It broke.\nDETAIL: offset 42\nHINT: Mend it."


def test_str_omits_missing_parts() -> None:
    assert str(RoquetError("It broke.")) == "It broke."
    assert str(RoquetError("It broke.", hint="Mend it.")) == "It broke.\nHINT: Mend it."


def test_code_is_that_of_the_class_unless_given() -> None:
    assert DiskFull("full").code == "disk_full"
    assert DiskFull("full", code="quota").code == "quota"


def test_class_attributes_decide_retry_and_exit() -> None:
    assert DiskFull.retriable
    assert not RoquetError.retriable
    assert RoquetError.exit_code == 1
    assert ConfigError.exit_code == 2


@pytest.mark.parametrize("cls", ALL)
def test_errors_survive_pickling(cls: type[RoquetError]) -> None:
    error = cls("It broke.", code="c", detail="d", hint="h")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is cls
    assert (str(copy), copy.code) == (str(error), "c")
