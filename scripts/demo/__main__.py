"""``make demo``: the whole story.

Starts ``roquet dev``, opens a small shop with the Python client (keys, tags, delays, transactions,
poison), lets two groups consume from it, kills the broker with ``kill -9`` and finds every
acknowledged message, runs Spark pipelines on the log of the running broker, and stops. The data
folder is kept. Exits with 0 if everything worked.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
from pathlib import Path

import click

from roquet.errors import RoquetError
from roquet.runtime.clock import SystemClock
from roquet.spark.jobs.store_config import read_group_offsets
from scripts.demo.pipelines import run_pipelines
from scripts.demo.screen import bars, say
from scripts.demo.servers import Failed, dev, roquet
from scripts.demo.shop import (
    BILLING,
    ORDERS,
    SHIPPING,
    Sent,
    check_consumed,
    consume,
    open_shop,
    until,
)

DEFAULT_FOLDER = Path("roquet-demo")


async def trade(namesrv: str, store: Path) -> Sent:
    """Send and consume, until the broker has the groups' offsets."""
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    sent = await open_shop(namesrv)
    seconds = (clock.monotonic_ns() - began_ns) / 1e9
    click.echo(
        f"{len(sent.orders):,} orders, {len(sent.payments)} payments ({sent.refused} rolled back) "
        f"and {len(sent.reminders)} reminders acknowledged in {seconds:.1f} s"
    )
    say("Two groups consume: billing all of it, shipping in order, and only for a while")
    seen = await consume(namesrv, sent)
    check_consumed(sent, seen)
    shipped = sum(map(len, seen.shipped.values()))
    click.echo(
        f"billing took {len(seen.billed):,} orders and {len(seen.others)} other messages, failed "
        f"{seen.failures} times on {len(sent.poison)} broken ones; shipping took {shipped:,}"
    )
    bars("revenue by category", seen.revenue)
    await until(
        lambda: {(BILLING, ORDERS), (SHIPPING, ORDERS)} <= set(read_group_offsets(store)),
        "the broker noted how far the groups are",
    )
    return sent


def demo(folder: Path) -> None:
    """The whole story."""
    say("Start a name server and a broker in one process")
    with dev(folder) as running:
        say("Open the shop: orders with the Python client")
        sent = asyncio.run(trade(running.namesrv, folder / "store"))
        roquet("topic", "ls", "-n", running.namesrv)
        say("Kill the process with SIGKILL, as a crash would")
        running.end(signal.SIGKILL)
    say("Start again on the same files: every acknowledged message is there")
    with dev(folder) as running:
        roquet("tail", f"%DLQ%{BILLING}", "-n", running.namesrv, "--from", "earliest")
        roquet("tail", ORDERS, "-n", running.namesrv, "--from", "earliest", "--count", "3")
        run_pipelines(folder, running.namesrv, sent)
        say("Stop it with SIGTERM")
        code = running.end(signal.SIGTERM)
        if code:
            raise Failed(f"roquet dev ended with {code}")
        click.echo("It ended with 0: everything is on disk.")
    say("Check the store without a broker")
    roquet("store", "verify", str(folder / "store"))


def main() -> None:
    """Run the demo in a folder, which is kept."""
    parser = argparse.ArgumentParser(description="A small shop on Roquet.")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    folder: Path = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    try:
        demo(folder)
    except (Failed, RoquetError) as error:
        click.echo(f"The demo failed: {error}", err=True)
        sys.exit(1)
    say("Done: sent, consumed, killed, recovered, streamed, audited, archived, verified.")
    click.echo(
        f"The data is in {folder}. Look at it with: .venv/bin/roquet store info {folder}/store"
    )


if __name__ == "__main__":
    main()
