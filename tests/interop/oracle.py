"""What a test uses of the Java side: brokers on a store directory, and a client to query them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.javabroker import JavaBroker, JavaNamesrv, start_broker
from tests.interop.javabuild import JavaToolkit
from tests.interop.javaclient import JavaClient

# Small files, so that a thousand messages roll each kind several times: segments of 64 KiB, 30
# queue entries a file. Index files are larger than in the golden stores: Java names them by the
# millisecond and writes over the first of two that it fills within one, as it does with 200 entries
# when it puts the records of a crashed store again.
SMALL_FILES: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 100,
    "maxIndexNum": 1000,
}

# A broker refuses a message that waited for 200 ms, which it may have to on a busy machine.
PATIENT: dict[str, str | int] = {
    "waitTimeMillsInSendQueue": 20_000,
    "waitTimeMillsInPullQueue": 20_000,
    "osPageCacheBusyTimeOutMills": 20_000,
}

# After a crash Java drops index files that its checkpoint does not vouch for, but puts at most the
# records of the last ten segments again. Ten usual segments are 10 GiB, ten small ones are not all.
JAVA_CONFIG: dict[str, str | int] = {**SMALL_FILES, **PATIENT, "commitLogRecoverMaxNum": 1000}


@dataclass(frozen=True)
class JavaOracle:
    toolkit: JavaToolkit
    namesrv: JavaNamesrv
    client: JavaClient
    folder: Path

    @contextmanager
    def broker(
        self, store: Path, config: Mapping[str, str | int] = JAVA_CONFIG
    ) -> Iterator[JavaBroker]:
        """A broker on `store`, registered; killed at the end unless the test stopped it."""
        with start_broker(self.toolkit, self.folder, self.namesrv, store, config) as broker:
            assert self.client.wait_registered(broker) == broker.address
            yield broker
