"""``roquet spark export``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from roquet.cli.spark.run import JobRun, job_options, parse_names, run_job


@click.command()
@click.argument("store", type=click.Path())
@click.option("--out", required=True, metavar="URI", help="A folder, or s3://…, hdfs://…, gs://…")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["json", "csv", "parquet"]),
    default="json",
    show_default=True,
    help="Of the files.",
)
@click.option(
    "--columns", callback=parse_names, metavar="NAMES", help="Only these, comma-separated."
)
@click.option(
    "--rules",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file that says what to hide; hashes are salted with ROQUET_EXPORT_SALT.",
)
@job_options
def export(
    *,
    store: str,
    out: str,
    file_format: str,
    columns: tuple[str, ...],
    rules: Path | None,
    run: JobRun,
) -> None:
    """Write messages to JSON lines, CSV or Parquet, with masking rules."""
    from roquet.spark.jobs import export as job
    from roquet.spark.jobs.mask_rules import read_rules

    found = read_rules(rules) if rules is not None else []
    run_job(
        run,
        "export",
        lambda spark: job.export(
            spark,
            store,
            out,
            file_format=file_format,
            wanted=run.wanted,
            columns=columns or job.DEFAULT_COLUMNS,
            rules=found,
            salt=os.environ.get("ROQUET_EXPORT_SALT", "").encode(),
            is_dry_run=run.is_dry_run,
        ),
    )
