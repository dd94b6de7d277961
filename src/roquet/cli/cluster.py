"""``roquet cluster``: show clusters and their brokers."""

from __future__ import annotations

import click
from msgspec import Struct

from roquet.admin import Admin
from roquet.cli.broker_state import BrokerState, broker_states, print_states
from roquet.cli.client import administer
from roquet.cli.completion import complete_cluster
from roquet.cli.connection import Connection, connection_options
from roquet.cli.context_file import nearest
from roquet.cli.output import json_option, plural, print_json, print_table
from roquet.errors import NotFound

__all__ = ["ClusterFacts", "cluster"]


class ClusterFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster, for programs; ``masters`` and ``slaves`` are counts of processes."""

    cluster: str
    brokers: list[str]
    masters: int
    slaves: int


@click.group()
def cluster() -> None:
    """Show clusters and their brokers."""


@cluster.command("ls")
@connection_options
@json_option
def list_clusters(*, connection: Connection, as_json: bool) -> None:
    """List the clusters known to the name servers."""

    async def work(admin: Admin) -> list[ClusterFacts]:
        brokers = await admin.clusters.brokers()
        return [
            ClusterFacts(
                cluster=name,
                brokers=sorted({each.name for each in brokers if each.cluster == name}),
                masters=sum(each.is_master for each in brokers if each.cluster == name),
                slaves=sum(not each.is_master for each in brokers if each.cluster == name),
            )
            for name in sorted({each.cluster for each in brokers})
        ]

    found = administer(connection, work)
    if as_json:
        print_json(found)
        return
    print_table(
        plural(len(found), "cluster"),
        ("cluster", "masters", "slaves", "brokers"),
        [
            (each.cluster, str(each.masters), str(each.slaves), " ".join(each.brokers))
            for each in found
        ],
        numbers=("masters", "slaves"),
    )


@cluster.command()
@click.argument("name", metavar="[CLUSTER]", required=False, shell_complete=complete_cluster)
@connection_options
@json_option
def show(name: str | None, *, connection: Connection, as_json: bool) -> None:
    """Show the brokers of all clusters, or of one, and their state."""

    async def work(admin: Admin) -> dict[str, list[BrokerState]]:
        brokers = await admin.clusters.brokers()
        known = sorted({each.cluster for each in brokers})
        if name is not None and name not in known:
            raise NotFound(
                f"There is no cluster {name}",
                detail=f"known: {', '.join(known) or 'none'}",
                hint=nearest(name, known),
            )
        states = await broker_states(
            admin, [each for each in brokers if name in {None, each.cluster}]
        )
        wanted = known if name is None else [name]
        return {each: [state for state in states if state.cluster == each] for each in wanted}

    found = administer(connection, work)
    if as_json:
        print_json([{"cluster": each, "brokers": states} for each, states in found.items()])
        return
    for each, states in found.items():
        print_states(each, states)
