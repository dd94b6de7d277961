"""A store with messages to read back."""

from __future__ import annotations

from roquet.store.default_message_store import DefaultMessageStore
from tests.unit.store.kit import message, put


def fill(store: DefaultMessageStore, count: int, size: int = 10) -> None:
    put(
        store,
        *[message(b"%d" % n * size, TAGS="even" if n % 2 == 0 else "odd") for n in range(count)],
    )


def drop_first_segments(store: DefaultMessageStore, count: int) -> None:
    """As retention does, but whatever their age."""
    for segment in store.commit_log.queue.drop_oldest(count):
        segment.destroy()
