"""``roquet spark setup``: checks that Spark works, and builds its class archive."""

from __future__ import annotations

import click

from roquet.cli.output import json_option, print_json


@click.command()
@click.option("--no-archive", is_flag=True, help="Only check; build nothing.")
@json_option
def setup(*, no_archive: bool, as_json: bool) -> None:
    """Check that Spark works, and build its class archive.

    The archive (150 MB, in the cache folder of the user) halves the startup time of jobs.
    """
    from roquet.spark.extra import check_extra, installed_version

    check_extra()
    from roquet.spark.class_archive import archive_path, make_archive
    from roquet.spark.java import find_java

    java = find_java()
    if not no_archive:
        make_archive()
    path = archive_path(java)
    facts = {
        "pyspark": installed_version("pyspark"),
        "java": java.version,
        "javaPath": str(java.path),
        "classArchive": str(path) if path.is_file() else None,
    }
    if as_json:
        print_json(facts)
        return
    click.echo(f"pyspark {facts['pyspark']}, Java {java.version} ({java.path})")
    click.echo(f"class archive: {facts['classArchive'] or 'not built'}")
