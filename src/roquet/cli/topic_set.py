"""``roquet topic set``: change the settings of a topic on each of its brokers.

Other settings stay as they are. Fewer queues or permissions cut consumers off from messages or
producers from the topic, so such a change asks for confirmation.
"""

from __future__ import annotations

import click
from msgspec import Struct, structs

from roquet.admin import Admin
from roquet.cli.attributes import Attributes, attribute_option
from roquet.cli.broker_targets import Changes, on_each, place_options, report_changes, words_of
from roquet.cli.client import administer, nearest_topic, warn_failures
from roquet.cli.completion import complete_topic
from roquet.cli.connection import Connection, connection_options
from roquet.cli.output import confirm, json_option, yes_option
from roquet.client.names import check_topic
from roquet.errors import ConfigError
from roquet.model.topic_config import PERM_READ, PERM_WRITE, TopicConfig

__all__ = ["PERMS", "perm_text", "set_topic"]

PERMS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE}


def perm_text(perm: int) -> str:
    """A permission as the flags have it; a dash for none."""
    return ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "") or "-"


class _Wish(Struct, frozen=True, kw_only=True):
    """The values of the flags; ``None`` changes nothing."""

    read_queues: int | None
    write_queues: int | None
    perm: str | None
    order: bool | None
    attributes: Attributes

    def config(self, now: TopicConfig) -> TopicConfig:
        """The settings to send to a broker, with named attributes only."""
        return structs.replace(
            now,
            read_queue_nums=self.read_queues or now.read_queue_nums,
            write_queue_nums=self.write_queues or now.write_queue_nums,
            perm=now.perm if self.perm is None else PERMS[self.perm],
            order=now.order if self.order is None else self.order,
            attributes={key: text for key, text in self.attributes.items() if text is not None},
        )

    def removed(self, now: TopicConfig) -> list[str]:
        """The attributes of a broker to remove."""
        return [key for key in now.attributes if self.attributes.get(key, "") is None]

    def changes(self, now: TopicConfig) -> Changes:
        """The values that differ."""
        then = self.config(now)
        pairs: Changes = {
            "readQueues": (now.read_queue_nums, then.read_queue_nums),
            "writeQueues": (now.write_queue_nums, then.write_queue_nums),
            "perm": (perm_text(now.perm), perm_text(then.perm)),
            "order": (now.order, then.order),
            **{key: (now.attributes.get(key), value) for key, value in self.attributes.items()},
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def takes_away(self, now: TopicConfig) -> bool:
        """Whether clients lose something."""
        then = self.config(now)
        return (
            then.read_queue_nums < now.read_queue_nums
            or then.write_queue_nums < now.write_queue_nums
            or bool(now.perm & ~then.perm)
        )


@click.command("set")
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@connection_options
@click.option(
    "--queues", type=click.IntRange(min=1), help="Number of queues to read from and write to."
)
@click.option("--read-queues", type=click.IntRange(min=1), help="Number of queues to read from.")
@click.option("--write-queues", type=click.IntRange(min=1), help="Number of queues to write to.")
@click.option("--perm", type=click.Choice(tuple(PERMS)), help="Permission.")
@click.option(
    "--order/--no-order", default=None, help="Keep to its queues while a broker is unreachable."
)
@attribute_option(can_remove=True)
@place_options
@yes_option
@json_option
def set_topic(
    name: str,
    *,
    connection: Connection,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    perm: str | None,
    order: bool | None,
    attributes: Attributes,
    cluster: str | None,
    broker: str | None,
    is_sure: bool,
    as_json: bool,
) -> None:
    """Change the settings of a topic; others stay as they are."""
    check_topic(name)
    topic = connection.wrap(name)
    wish = _Wish(
        read_queues=read_queues or queues,
        write_queues=write_queues or queues,
        perm=perm,
        order=order,
        attributes=attributes,
    )
    if wish == _Wish(read_queues=None, write_queues=None, perm=None, order=None, attributes={}):
        raise ConfigError("Nothing to set", hint="roquet topic set --help lists the settings.")

    async def read(admin: Admin) -> dict[str, TopicConfig]:
        route = await admin.topics.route(topic)
        holders = {each.broker_name for each in route.broker_datas}
        found = await admin.topics.config(topic, cluster=cluster, broker=broker)
        if not found.answers:
            found.complete(f"Reading the settings of {topic}")
        missing = {each: why for each, why in found.failures.items() if each in holders}
        warn_failures(missing, as_json=as_json)
        return found.answers

    with nearest_topic(connection, topic):
        now = administer(connection, read)
    changes = {each: part for each, config in now.items() if (part := wish.changes(config))}
    if any(wish.takes_away(config) for config in now.values()):
        lines = "\n  ".join(words_of(changes))
        confirm(f"Clients lose access to parts of {topic}:\n  {lines}\nSet it?", is_sure=is_sure)
    targets = {each: config for each, config in now.items() if each in changes}
    brokers = administer(
        connection,
        lambda admin: on_each(
            targets,
            lambda each, config: admin.topics.put(
                wish.config(config), removed_attributes=wish.removed(config), broker=each
            ),
            f"Setting {topic}",
        ),
    )
    report_changes("topic", topic, brokers, changes, as_json=as_json)
