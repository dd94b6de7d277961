"""The commands of upstream's admin tool and their flags, as ``commands.txt`` lists them.

.. code-block:: text

    updateTopic topic UpdateTopicSubCommand Update or create topic.
    │           │     │                     └ summary
    │           │     └ upstream's class, which its failures name
    │           └ module of this package; no:REASON for a command that is refused by name
    └ name
      t topic =! topic name
      │ │     │  └ help
      │ │     └ = takes a value, . takes none; ! is required; a digit names a group of flags of
      │ │       which exactly one is required
      │ └ long name; _ stands for a blank, which some of upstream's have
      └ short name, or - for none
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct

__all__ = ["REASONS", "CommandSpec", "Flag", "all_specs", "find_spec"]

REFUSED = "no:"

REASONS = {
    "auth": "users and policies are not built yet",
    "cold": "control of cold data is not built",
    "container": "there are no broker containers",
    "controller": "there is no controller yet",
    "monitor": "there is no monitor; call consumerProgress at intervals instead",
    "rocksdb": "nothing is kept in RocksDB",
}
"""Why a command is refused."""


class Flag(Struct, frozen=True):
    """A flag of a command.

    Attributes:
        short: Its short name; empty for none.
        long: Its long name.
        help: What it is for.
        has_value: Whether a value follows.
        is_required: Whether it must be given.
        group: The group of flags of which one must be given; 0 for none.
    """

    short: str
    long: str
    help: str
    has_value: bool = True
    is_required: bool = False
    group: int = 0

    @property
    def key(self) -> str:
        """What identifies it: the short name, if it has one."""
        return self.short or self.long


COMMON = (
    Flag("h", "help", "Print help", has_value=False),
    Flag(
        "n",
        "namesrvAddr",
        "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'",
    ),
)
"""The flags of every command."""


class CommandSpec(Struct, frozen=True):
    """A command.

    Attributes:
        name: Its name.
        area: The module of this package that implements it, or ``no:`` and why it is refused.
        java_class: The name of upstream's class, without its package.
        summary: What it does.
        flags: Its flags, in upstream's order.
    """

    name: str
    area: str
    java_class: str
    summary: str
    flags: Sequence[Flag]

    @property
    def refusal(self) -> str | None:
        """Why Roquet does not have the command; ``None`` if it does."""
        is_refused = self.area.startswith(REFUSED)
        return REASONS[self.area.removeprefix(REFUSED)] if is_refused else None


@cache
def all_specs() -> Sequence[CommandSpec]:
    """All commands, in upstream's order."""
    found: list[CommandSpec] = []
    heads: list[list[str]] = []
    flags: list[Flag] = []

    def finish() -> None:
        if heads:
            own = {flag.key for flag in flags}
            common = [flag for flag in COMMON if flag.key not in own]
            name, area, java_class, summary = heads.pop()
            found.append(CommandSpec(name, area, java_class, summary, (*common, *flags)))
            flags.clear()

    table = files("roquet.cli.mqadmin").joinpath("commands.txt").read_text("utf-8")
    for line in table.splitlines():
        if line.startswith(" "):
            short, long, kind, *text = line.split(None, 3)
            group = kind.lstrip("=.!")
            flags.append(
                Flag(
                    short.removeprefix("-"),
                    long.replace("_", " "),
                    "".join(text),
                    has_value=kind.startswith("="),
                    is_required="!" in kind,
                    group=int(group or 0),
                )
            )
        else:
            finish()
            heads.append(line.split(None, 3))
    finish()
    return tuple(found)


def find_spec(name: str) -> CommandSpec | None:
    """Find a command by name, ignoring case."""
    wanted = name.lower()
    return next((spec for spec in all_specs() if spec.name.lower() == wanted), None)
