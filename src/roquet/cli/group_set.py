"""``roquet group create`` and ``roquet group set``: the settings of a consumer group.

``set`` changes only the settings it is given, on each broker. Forbidding consumption stops the
group, so it asks for confirmation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypedDict, TypeVar, Unpack

import click
from msgspec import Struct, structs

from roquet.admin import Admin
from roquet.cli.broker_targets import Changes, on_each, place_options, report_changes, words_of
from roquet.cli.client import administer, warn_failures
from roquet.cli.completion import complete_group
from roquet.cli.connection import Connection, connection_options
from roquet.cli.context_file import nearest
from roquet.cli.output import confirm, json_option, print_json, yes_option
from roquet.client.names import check_group
from roquet.errors import ClientError, ConfigError, NotFound
from roquet.model.subscription import SubscriptionGroupConfig

__all__ = ["create_group", "group_configs", "set_group"]

P = ParamSpec("P")
T = TypeVar("T")

_FIELDS = {
    "retry_max_times": "retries",
    "retry_queue_nums": "retryQueues",
    "consume_enable": "consume",
    "consume_broadcast_enable": "broadcast",
    "consume_message_orderly": "orderly",
    "consume_from_min_enable": "fromMin",
}
"""The settings that have a flag, and their names for people and programs."""

_SWITCHES = (
    ("consume", "consume_enable", "may consume"),
    ("broadcast", "consume_broadcast_enable", "may broadcast"),
    ("orderly", "consume_message_orderly", "consumes in order"),
    ("from-min", "consume_from_min_enable", "may start with old messages"),
)


class _Flags(TypedDict):
    """The flags as keyword arguments."""

    retry_max_times: int | None
    retry_queue_nums: int | None
    consume_enable: bool | None
    consume_broadcast_enable: bool | None
    consume_message_orderly: bool | None
    consume_from_min_enable: bool | None


class _Wish(Struct, frozen=True, kw_only=True):
    """The values of the flags; ``None`` changes nothing."""

    retry_max_times: int | None
    retry_queue_nums: int | None
    consume_enable: bool | None
    consume_broadcast_enable: bool | None
    consume_message_orderly: bool | None
    consume_from_min_enable: bool | None

    @property
    def said(self) -> dict[str, object]:
        """The settings to change."""
        fields = structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}

    def config(self, now: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """The settings after the change."""
        return structs.replace(now, **self.said)

    def changes(self, now: SubscriptionGroupConfig) -> Changes:
        """The values that differ."""
        return {
            _FIELDS[name]: (getattr(now, name), value)
            for name, value in self.said.items()
            if getattr(now, name) != value
        }


def _settings_options(command: Callable[P, T]) -> Callable[P, T]:
    options = (
        click.option(
            "--retries",
            "retry_max_times",
            type=click.IntRange(min=-1),
            help="How many times a message is redelivered at most.",
        ),
        click.option(
            "--retry-queues",
            "retry_queue_nums",
            type=click.IntRange(min=1),
            help="Number of retry queues.",
        ),
        *(
            click.option(f"--{flag}/--no-{flag}", name, default=None, help=f"Whether it {text}.")
            for flag, name, text in _SWITCHES
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


async def group_configs(
    admin: Admin,
    group: str,
    *,
    cluster: str | None = None,
    broker: str | None = None,
    as_json: bool,
) -> dict[str, SubscriptionGroupConfig]:
    """The settings of a group on the brokers that have it.

    Raises:
        NotFound: None has it.
        BrokersFailed: None of those that respond has it, and some do not respond.
    """
    # A broker may create a group that is requested by name; reading must not.
    gathered = await admin.groups.configs(cluster=cluster, broker=broker)
    tables = gathered.partial(f"Reading the settings of {group}")
    found = {name: table[group] for name, table in tables.items() if group in table}
    if not found:
        gathered.complete(f"Reading the settings of {group}")
        known = {each for table in tables.values() for each in table}
        raise NotFound(
            f"There is no group {group}",
            hint=nearest(group, known) or "roquet group ls lists the groups.",
        )
    warn_failures(gathered.failures, as_json=as_json)
    return found


@click.command("create")
@click.argument("name", metavar="GROUP")
@connection_options
@_settings_options
@place_options
@json_option
def create_group(
    name: str,
    *,
    connection: Connection,
    cluster: str | None,
    broker: str | None,
    as_json: bool,
    **flags: Unpack[_Flags],
) -> None:
    """Create a consumer group. Fails if it exists already."""
    check_group(name)
    group = connection.wrap(name)
    wish = _Wish(**flags)

    async def work(admin: Admin) -> list[str]:
        tables = await admin.groups.configs(cluster=cluster, broker=broker)
        there = [each for each, table in tables.answers.items() if group in table]
        if there:
            raise ClientError(
                f"The group {group} already exists",
                code="already_exists",
                detail=f"on {', '.join(there)}",
                hint=f"Show it with: roquet group show {name}",
            )
        config = wish.config(SubscriptionGroupConfig(group_name=group))
        return await admin.groups.put(config, cluster=cluster, broker=broker)

    brokers = administer(connection, work)
    if as_json:
        print_json({"group": group, "brokers": brokers})
    else:
        click.echo(f"Created the group {group} on {', '.join(brokers)}")


@click.command("set")
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@connection_options
@_settings_options
@place_options
@yes_option
@json_option
def set_group(
    name: str,
    *,
    connection: Connection,
    cluster: str | None,
    broker: str | None,
    is_sure: bool,
    as_json: bool,
    **flags: Unpack[_Flags],
) -> None:
    """Change the settings of a group; others stay as they are."""
    check_group(name)
    group = connection.wrap(name)
    wish = _Wish(**flags)
    if not wish.said:
        raise ConfigError("Nothing to set", hint="roquet group set --help lists the settings.")
    now = administer(
        connection,
        lambda admin: group_configs(admin, group, cluster=cluster, broker=broker, as_json=as_json),
    )
    changes = {each: part for each, config in now.items() if (part := wish.changes(config))}
    if any("consume" in part for part in changes.values()) and not wish.consume_enable:
        lines = "\n  ".join(words_of(changes))
        confirm(f"The group {group} stops consuming:\n  {lines}\nSet it?", is_sure=is_sure)
    targets = {each: config for each, config in now.items() if each in changes}
    brokers = administer(
        connection,
        lambda admin: on_each(
            targets,
            lambda each, config: admin.groups.put(wish.config(config), broker=each),
            f"Setting {group}",
        ),
    )
    report_changes("group", group, brokers, changes, as_json=as_json)
