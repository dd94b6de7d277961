"""``roquet broker ls`` and ``roquet broker show``: inspect running brokers.

Settings whose names suggest secrets are shown as stars, whatever the broker returns.
"""

from __future__ import annotations

import re

import click
from msgspec import Struct

from roquet.admin import Admin, BrokerInfo
from roquet.cli.broker_state import BrokerState, broker_states, print_states
from roquet.cli.client import administer
from roquet.cli.completion import complete_broker
from roquet.cli.connection import Connection, connection_options
from roquet.cli.context_file import HIDDEN, nearest
from roquet.cli.output import json_option, plural, print_json, print_table, printable
from roquet.errors import NotFound

__all__ = ["BrokerView", "list_brokers", "show_broker", "shown_settings", "the_broker"]

_SECRET = re.compile(r"(?i)password|passwd|secret|credential|token")


class BrokerView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker, for programs; ``runtime`` and ``settings`` only if requested."""

    broker_name: str
    processes: list[BrokerState]
    runtime: dict[str, str] | None
    settings: dict[str, str] | None


def shown_settings(settings: dict[str, str]) -> dict[str, str]:
    """Settings without secrets, sorted by name."""
    return {
        key: HIDDEN if _SECRET.search(key) and settings[key] else settings[key]
        for key in sorted(settings)
    }


async def the_broker(admin: Admin, name: str) -> list[BrokerInfo]:
    """The processes of a broker.

    Raises:
        NotFound: There is no such broker.
    """
    brokers = await admin.clusters.brokers()
    found = [each for each in brokers if name in {each.name, each.address}]
    if not found:
        known = sorted({each.name for each in brokers})
        raise NotFound(
            f"There is no broker {name}",
            detail=f"known: {', '.join(known) or 'none'}",
            hint=nearest(name, known),
        )
    return found


@click.command("ls")
@connection_options
@click.option("--cluster", metavar="NAME", help="Only brokers of this cluster.")
@json_option
def list_brokers(*, connection: Connection, cluster: str | None, as_json: bool) -> None:
    """List the brokers of a cluster, masters and slaves, and their state."""

    async def work(admin: Admin) -> list[BrokerState]:
        brokers = await admin.clusters.brokers()
        wanted = [each for each in brokers if cluster in {None, each.cluster}]
        return await broker_states(admin, wanted)

    found = administer(connection, work)
    if as_json:
        print_json(found)
    else:
        print_states(plural(len(found), "broker"), found)


@click.command("show")
@click.argument("name", metavar="BROKER", shell_complete=complete_broker)
@connection_options
@click.option(
    "--runtime",
    "with_runtime",
    is_flag=True,
    help="Show everything that it reports about its state.",
)
@click.option("--config", "with_settings", is_flag=True, help="Show its settings.")
@click.option("--grep", metavar="TEXT", help="Only names that contain this.")
@json_option
def show_broker(
    name: str,
    *,
    connection: Connection,
    with_runtime: bool,
    with_settings: bool,
    grep: str | None,
    as_json: bool,
) -> None:
    """Show a broker, given by name or host:port."""

    def wanted(pairs: dict[str, str]) -> dict[str, str]:
        text = (grep or "").casefold()
        return {key: value for key, value in pairs.items() if text in key.casefold()}

    async def work(admin: Admin) -> BrokerView:
        brokers = await the_broker(admin, name)
        runtime, settings = None, None
        if with_runtime:
            answers = await admin.clusters.runtime(broker=name)
            runtime = answers.complete("Reading a broker's state")[name]
        if with_settings:
            answers = await admin.settings.brokers(broker=name)
            settings = shown_settings(answers.complete("Reading a broker's state")[name])
        return BrokerView(
            broker_name=brokers[0].name,
            processes=await broker_states(admin, brokers),
            runtime=None if runtime is None else wanted(runtime),
            settings=None if settings is None else wanted(settings),
        )

    found = administer(connection, work)
    if as_json:
        print_json(found)
        return
    print_states(found.broker_name, found.processes)
    for title, pairs in (("Runtime", found.runtime), ("Settings", found.settings)):
        if pairs is not None:
            rows = [(key, printable(value)) for key, value in pairs.items()]
            print_table(title, ("name", "value"), rows)
