"""Writes messages to a store and prints each acknowledged one; made to be killed.

    python -m tests.interop.store_writer STORE TOPIC QUEUES SEED COUNT

A line is a JSON array: topic, queue id, queue offset, physical offset, SHA-1 of the body. With a
COUNT it closes the store cleanly after so many puts; with COUNT 0 it never stops by itself.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import astuple
from pathlib import Path

from tests.interop.roquetstore import open_store, put_messages


def main() -> None:
    """Runs the writer with the arguments of the command line."""
    path, topic, queues, seed, count = sys.argv[1:]
    rng = random.Random(seed)
    with open_store(Path(path)) as store:
        number = 0
        while number < int(count) or count == "0":
            burst = rng.randint(1, 8)
            for ack in put_messages(
                store, topic, queues=int(queues), seed=int(seed), first=number, count=burst
            ):
                sys.stdout.write(json.dumps(astuple(ack)) + "\n")
            sys.stdout.flush()
            number += burst


if __name__ == "__main__":
    main()
