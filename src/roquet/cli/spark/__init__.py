"""``roquet spark``: the pipelines as commands.

A job's module is imported when it is called; Spark is started only after all arguments have been
checked.
"""

from __future__ import annotations

import importlib

import click

__all__ = ["JOBS", "spark"]

JOBS: dict[str, tuple[str, str]] = {
    "archive": ("roquet.cli.spark.archive:archive", "The log as a Parquet lake."),
    "audit": ("roquet.cli.spark.audit:audit", "Check records, and other files against the log."),
    "capacity": ("roquet.cli.spark.capacity:capacity", "Growth, and days until the disk is full."),
    "compact": ("roquet.cli.spark.compact:compact", "The last value of each key of a topic."),
    "dlq": ("roquet.cli.spark.dlq:dlq", "Dead letters: list, show, resend."),
    "export": ("roquet.cli.spark.export:export", "Messages as JSON, CSV or Parquet, masked."),
    "lag": ("roquet.cli.spark.lag:lag", "How far consumer groups are behind."),
    "rebuild": ("roquet.cli.spark.rebuild:rebuild", "ConsumeQueue and index from the log."),
    "replay": ("roquet.cli.spark.replay:replay", "Resend messages of a time range."),
    "setup": ("roquet.cli.spark.setup:setup", "Check that Spark works, and speed up its start."),
    "stats": ("roquet.cli.spark.stats:stats", "Messages, bytes, rates, skew, hot keys, latency."),
    "trace": ("roquet.cli.spark.trace:trace", "Where messages spend their time."),
    "tier": ("roquet.cli.spark.tier:tier", "Delete segments that are in the lake."),
    "verify": ("roquet.cli.spark.verify:verify", "Compare the lake with the log."),
}
"""The location and help line of each command, by name."""


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
    cluster (--namesrv). It runs on this machine unless --master names a cluster, and exits with 2
    when it has findings.
    """
