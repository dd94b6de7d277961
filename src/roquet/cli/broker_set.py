"""``roquet broker set``: change settings of a running broker.

It shows the old and new value of each setting and asks once, then what the broker reports.
"""

from __future__ import annotations

import click

from roquet.admin import Admin
from roquet.cli.broker_show import shown_settings, the_broker
from roquet.cli.broker_targets import Changes, fields_of, words_of
from roquet.cli.client import administer
from roquet.cli.completion import complete_broker
from roquet.cli.connection import Connection, connection_options
from roquet.cli.context_file import nearest
from roquet.cli.output import confirm, json_option, parse_pairs, print_json, yes_option
from roquet.errors import ClientError, NotFound

__all__ = ["set_broker"]


async def _settings(admin: Admin, broker: str) -> dict[str, str]:
    await the_broker(admin, broker)
    return (await admin.settings.brokers(broker=broker)).complete("Reading settings")[broker]


@click.command("set")
@click.argument("name", metavar="BROKER", shell_complete=complete_broker)
@click.argument("wanted", metavar="NAME=VALUE...", nargs=-1, required=True, callback=parse_pairs)
@connection_options
@yes_option
@json_option
def set_broker(
    name: str,
    *,
    wanted: dict[str, str],
    connection: Connection,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Change settings of a broker, given by name or host:port. Either all are changed or none."""
    now = administer(connection, lambda admin: _settings(admin, name))
    for key in wanted:
        if key not in now:
            raise NotFound(
                f"{name} has no setting {key}",
                hint=nearest(key, now) or f"roquet broker show {name} --config lists them.",
            )
    old, new = shown_settings(now), shown_settings(wanted)
    changes: Changes = {key: (old[key], new[key]) for key in wanted if now[key] != wanted[key]}
    if not changes:
        _report(name, {}, as_json=as_json)
        return
    lines = "\n  ".join(words_of({name: changes}))
    confirm(f"Set:\n  {lines}\nDo it?", is_sure=is_sure)
    told = {key: wanted[key] for key in changes}

    async def work(admin: Admin) -> dict[str, str]:
        await admin.settings.set_brokers(told, broker=name)
        return await _settings(admin, name)

    then = administer(connection, work)
    kept = sorted(key for key in told if then.get(key) == now[key])
    if kept:
        raise ClientError(
            f"{name} accepted the settings, but did not change {', '.join(kept)}",
            code="not_changed",
            hint="The broker reads this setting from its file at startup only.",
        )
    _report(name, changes, as_json=as_json)


def _report(name: str, changes: Changes, *, as_json: bool) -> None:
    if as_json:
        print_json({"brokerName": name, "changes": fields_of({name: changes})[name]})
    elif changes:
        click.echo("Set\n  " + "\n  ".join(words_of({name: changes})))
    else:
        click.echo(f"{name} has these settings already")
