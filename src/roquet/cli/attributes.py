"""The option for attributes of topics.

Owns ``--attribute``: names and values, and, as in ``mqadmin updateTopic -a``, a plus before added
or changed ones, a minus before removed ones, and commas as separators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar

import click

__all__ = ["Attributes", "attribute_option"]

Attributes: TypeAlias = dict[str, str | None]
"""Values by name; ``None`` for an attribute that is to be removed."""

P = ParamSpec("P")
T = TypeVar("T")


def attribute_option(*, can_remove: bool) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """The option ``--attribute``, passed as ``attributes``.

    Args:
        can_remove: Whether the option may remove existing attributes.
    """

    def parse(
        _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
    ) -> Attributes:
        found: Attributes = {}
        for text in ",".join(values).split(",") if values else ():
            name, value = _parse_one(text.strip())
            if value is None and not can_remove:
                message = f"{text!r} removes an attribute, and a new topic has none."
                raise click.BadParameter(message)
            if name in found:
                message = f"{name!r} is given twice."
                raise click.BadParameter(message)
            found[name] = value
        return found

    return click.option(
        "-a",
        "--attribute",
        "attributes",
        metavar="NAME=VALUE",
        multiple=True,
        callback=parse,
        help="An attribute of version 5"
        + ("; -NAME removes one; repeatable." if can_remove else "; repeatable."),
    )


def _parse_one(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if name.startswith("-") and not equals:
        name, removes = name[1:], True
    else:
        name, removes = name.removeprefix("+"), False
    if not name or name.startswith(("+", "-")) or not (removes or value):
        message = f"{text!r} is neither NAME=VALUE nor -NAME."
        raise click.BadParameter(message)
    return name, None if removes else value
