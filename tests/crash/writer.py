"""A process that appends until it is killed, and reports on its output what it did.

Started by the kill tests as ``python writer.py ROOT MODE LIFE SEED``. One line an event, each
written whole before the next thing happens:

    loading                     before the store is opened
    ready                       before the first send
    put PRODUCER QUEUE VALUE    a send is about to begin
    ack VALUE OFFSET            it was acknowledged
    no VALUE                    it was refused
"""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

from roquet.format.batch import encode_batch
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.properties import encode_properties
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageResult

TOPIC = "Killed"
QUEUES = 3
PRODUCERS = 4


def config_of(mode: str) -> MessageStoreConfig:
    """Small files, short intervals: everything rolls and is flushed many times in a second."""
    return MessageStoreConfig(
        commit_log_file_bytes=1 << 16,
        consume_queue_file_bytes=1200,
        index_slots=100,
        index_entries=200,
        flush_disk_type=(FlushDiskType.SYNC_FLUSH if mode == "sync" else FlushDiskType.ASYNC_FLUSH),
        transient_store_pool=mode == "pool",
        transient_store_pool_size=3,
        flush_commit_log_interval_ms=5,
        flush_commit_log_least_pages=1,
        commit_interval_ms=2,
        commit_least_pages=1,
        commit_thorough_interval_ms=4,
        flush_consume_queue_interval_ms=10,
        flush_consume_queue_thorough_interval_ms=50,
        disk_warning_percent=100,
        disk_clean_forcibly_percent=100,
        disk_max_used_percent=100,
    )


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Producer:
    """One logical producer: it starts a send only after the response to the previous one."""

    def __init__(self, store: DefaultMessageStore, number: int, life: int, seed: int) -> None:
        self.store = store
        self.name = f"P{number}"
        self.prefix = f"L{life}-{self.name}"
        self.rng = random.Random(seed * 1000 + life * 10 + number)
        self.count = 0

    def run(self) -> None:
        while True:
            kind = self.rng.random()
            if kind < 0.6:
                self.one()
            elif kind < 0.8:
                self.batch()
            else:
                self.burst()

    def value(self, queue: int) -> str:
        self.count += 1
        value = f"{self.prefix}-{self.count}"
        say("put", self.name, queue, value)
        return value

    def content(self, value: str) -> tuple[bytes, bytes]:
        body = f"{value}:".encode() + b"b" * self.rng.choice((0, 10, 200, 1500))
        return body, encode_properties({"KEYS": value, "UNIQ_KEY": f"u{value}", "TAGS": "t"})

    def wait_safe(self, end_offset: int) -> None:
        """With a transient pool only what was committed to the file survives a kill."""
        while self.store.commit_log.pool and self.store.commit_log.max_offset < end_offset:
            threading.Event().wait(0.001)

    def answered(self, values: list[str], result: PutMessageResult) -> None:
        if result.append is None:
            for value in values:
                say("no", value)
        elif result.is_ok:
            self.wait_safe(result.append.end_offset)
            for number, value in enumerate(values):
                say("ack", value, result.append.queue_offset + number)

    def one(self) -> None:
        queue = self.rng.randrange(QUEUES)
        value = self.value(queue)
        self.answered([value], self.store.put_message(self.message(queue, value)))

    def message(self, queue: int, value: str) -> BrokerMessage:
        body, properties = self.content(value)
        return BrokerMessage(TOPIC, queue, body, properties)

    def batch(self) -> None:
        queue = self.rng.randrange(QUEUES)
        values = [self.value(queue) for _ in range(self.rng.randrange(2, 6))]
        data = encode_batch((0, *self.content(value)) for value in values)
        self.answered(values, self.store.put_message(BatchMessage(TOPIC, queue, data)))

    def burst(self) -> None:
        """A burst through the hot path; its sends overlap, so they go to different queues."""
        queues = range(QUEUES)
        values = [self.value(queue) for queue in queues]
        messages = [self.message(queue, value) for queue, value in zip(queues, values, strict=True)]
        result = self.store.put_burst(messages)
        if self.store.acks.is_needed:
            waiting = threading.Event()
            statuses: list[str] = []

            def done(status: object) -> None:
                statuses.append(str(status))
                waiting.set()

            with self.store.components.lock:
                self.store.acks.wait(result.end_offset, done)
            waiting.wait()
            if statuses != ["PutMessageStatus.PUT_OK"]:
                return
        self.wait_safe(result.end_offset)
        for number, value in enumerate(values):
            if number in result.refused:
                say("no", value)
            else:
                say("ack", value, result.queue_offsets[number])


def main() -> None:
    root, mode, life, seed = sys.argv[1:]
    say("loading")
    store = DefaultMessageStore(Path(root), config_of(mode))
    store.load()
    store.start()
    say("ready")
    producers = [Producer(store, number, int(life), int(seed)) for number in range(PRODUCERS)]
    threads = [threading.Thread(target=producer.run) for producer in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
