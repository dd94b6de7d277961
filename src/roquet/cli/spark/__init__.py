"""``roquet spark``: the pipelines as commands.

A job's module is imported when it is called; Spark is started after everything that can be refused
was looked at.
"""

from __future__ import annotations

import importlib

import click

__all__ = ["JOBS", "spark"]

JOBS: dict[str, tuple[str, str]] = {
    "archive": ("roquet.cli.spark.archive:archive", "The log as a Parquet lake."),
    "audit": ("roquet.cli.spark.audit:audit", "Every record, and everything else against the log."),
    "capacity": ("roquet.cli.spark.capacity:capacity", "Growth, and days until the disk is full."),
    "compact": ("roquet.cli.spark.compact:compact", "The last value of each key of a topic."),
    "dlq": ("roquet.cli.spark.dlq:dlq", "Dead letters: list, show, send again."),
    "export": ("roquet.cli.spark.export:export", "Messages as JSON, CSV or Parquet, masked."),
    "lag": ("roquet.cli.spark.lag:lag", "How far consumer groups are behind."),
    "rebuild": ("roquet.cli.spark.rebuild:rebuild", "ConsumeQueue and index from the log."),
    "replay": ("roquet.cli.spark.replay:replay", "Send messages of a time range once more."),
    "setup": ("roquet.cli.spark.setup:setup", "Look whether Spark runs here, and make it quick."),
    "stats": ("roquet.cli.spark.stats:stats", "Messages, bytes, rates, skew, hot keys, latency."),
    "trace": ("roquet.cli.spark.trace:trace", "Where messages spend their time."),
    "tier": ("roquet.cli.spark.tier:tier", "Segments that may go, because the lake has them."),
    "verify": ("roquet.cli.spark.verify:verify", "The lake against the log."),
}
"""By name: where the command is, and its line in the help."""


class _Jobs(click.Group):
    """A group whose commands come from a table."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in JOBS:
            return None
        module_name, _, attribute = JOBS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command), f"{cmd_name} is not a command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, JOBS[name][1]) for name in self.list_commands(ctx)]
        with formatter.section("Jobs"):
            formatter.write_dl(rows)


@click.group(cls=_Jobs)
def spark() -> None:
    """Run pipelines over logs and topics with Spark.

    A job reads the files of a store, Roquet's or Apache RocketMQ's, stopped or running, or a live
    cluster (--namesrv). It runs on this machine unless --master names a cluster, and ends with 2
    when it found what should not be.
    """
