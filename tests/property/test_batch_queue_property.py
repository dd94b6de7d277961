"""A batch consume queue against a model: appends, restarts, kills with lost writes, truncation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import GetMessageStatus
from tests.unit.store.batch_kit import inner_batch, kill, open_batches, places
from tests.unit.store.kit import message, put

Step = tuple[str, int]

STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(1, 9)),
    st.tuples(st.just("put"), st.integers(1, 9)),
    st.tuples(st.just("single"), st.just(1)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 200)),
    st.tuples(st.just("truncate"), st.integers(0, 3)),
)


def lose_writes(root: Path, lost_bytes: int) -> None:
    """Let the last bytes of the queue never have reached the disk."""
    for path in sorted((root / "batchconsumequeue").rglob("0*"), reverse=True):
        if not path.is_file() or lost_bytes <= 0:
            continue
        data = path.read_bytes()
        written = len(data.rstrip(b"\0"))
        kept = max(written - lost_bytes, 0)
        lost_bytes -= written - kept
        path.write_bytes(data[:kept].ljust(len(data), b"\0"))


class _Play:
    """One store and what it must hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store: DefaultMessageStore = open_batches(root)
        self.model: list[tuple[int, int]] = []

    @property
    def end(self) -> int:
        return sum(self.model[-1]) if self.model else 0

    def take(self, step: Step) -> None:
        kind, number = step
        if kind in {"put", "single"}:
            put(self.store, inner_batch(number) if kind == "put" else message(topic="B"))
            self.model.append((self.end, number))
        elif kind == "truncate" and self.model:
            base, _ = self.model[-1 - number % len(self.model)]
            self.store.truncate_to(self.store.physical_offset_in_queue("B", 0, base))
            self.model = [place for place in self.model if place[0] < base]
        elif kind == "restart":
            self.store.shutdown()
            self.store = open_batches(self.root)
        elif kind == "kill":
            kill(self.store)
            lose_writes(self.root, number)
            self.store = open_batches(self.root)

    def check(self) -> None:
        assert self.store.max_offset_in_queue("B", 0) == self.end
        assert self.store.max_offset_in_queue("B", 0, committed=False) == self.end
        if not self.model:
            return
        assert places(self.store) == self.model
        for base, size in self.model:
            for offset in (base, base + size - 1):
                found = self.store.get_message("B", 0, offset, 1)
                assert found.status is GetMessageStatus.FOUND
                assert (found.queue_offsets, found.next_begin_offset) == ([base], base + size)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_the_queue_is_what_was_appended(steps: Sequence[Step]) -> None:
    with TemporaryDirectory() as root:
        play = _Play(Path(root))
        for step in steps:
            play.take(step)
            play.check()
        kill(play.store)
