"""What a test takes from the Java side: brokers on a store directory, and a client to ask them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.javabroker import JavaBroker, JavaNamesrv, start_broker
from tests.interop.javabuild import JavaToolkit
from tests.interop.javaclient import JavaClient

# Small files, so that a few hundred messages roll each kind several times. The same numbers as in
# the golden stores: segments of 64 KiB, 30 queue entries a file, 199 index entries a file.
SMALL_FILES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 100,
    "maxIndexNum": 200,
}


@dataclass(frozen=True)
class JavaOracle:
    toolkit: JavaToolkit
    namesrv: JavaNamesrv
    client: JavaClient
    folder: Path

    @contextmanager
    def broker(
        self, store: Path, config: Mapping[str, str | int] | None = None
    ) -> Iterator[JavaBroker]:
        """A broker on `store`, registered; killed at the end unless the test stopped it."""
        values = SMALL_FILES if config is None else {**SMALL_FILES, **config}
        with start_broker(self.toolkit, self.folder, self.namesrv, store, values) as broker:
            assert self.client.wait_registered(broker) == broker.address
            yield broker
