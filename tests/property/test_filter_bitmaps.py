"""Bit maps change what is read, never what is delivered.

Groups come, change their expressions, leave and come back; the broker stops or crashes, with a
file of filters that is older than the messages; the clock stands still or goes back. A pull must
find exactly the messages that its expression matches.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from roquet.broker.config import BrokerConfig
from roquet.model.subscription import SubscriptionData
from roquet.remoting.codes import ResponseCode
from roquet.runtime.clock import ManualClock
from roquet.store.default_message_store import DefaultMessageStore
from tests.campaign import examples
from tests.unit.broker.processor.pull_kit import TOPIC, PullBroker, bodies, pull
from tests.unit.store.kit import NOW_MS, config, message, open_store

CONFIG = BrokerConfig(property_filter=True, calculate_filter_bitmap=True)
STORE = config(consume_queue_ext=True, consume_queue_file_bytes=20_000)
GROUPS = ("G", "H")
LIMITS = (0, 3, 6, 10)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
        st.tuples(st.just("beat"), st.sampled_from(GROUPS), st.sampled_from(LIMITS)),
        st.tuples(st.just("leave"), st.sampled_from(GROUPS)),
        st.tuples(st.just("persist")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("clock"), st.sampled_from([0, 1, 5, -3])),
        st.tuples(st.just("pull"), st.sampled_from(GROUPS)),
    ),
    min_size=3,
    max_size=30,
)


class World:
    """A broker on one store, what it stores, and what its groups want."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(NOW_MS)
        self.store: DefaultMessageStore = open_store(root / "store", clock=self.clock, config=STORE)
        self.values: list[int] = []
        self.limits: dict[str, int] = {}
        self.version = 0
        self.broker = self._started()

    def _started(self) -> PullBroker:
        self.store.dispatcher.arriving.clear()
        broker = PullBroker(self.root, CONFIG, self.store, self.clock)
        assert broker.filters.load() is None
        return broker

    def put(self, values: list[int]) -> None:
        self.values += values
        self.broker.put(*(message(b"%d" % value, topic=TOPIC, a=str(value)) for value in values))

    def beat(self, group: str, limit: int) -> None:
        self.version += 1
        self.limits[group] = limit
        subscription = SubscriptionData(
            topic=TOPIC, sub_string=f"a >= {limit}", expression_type="SQL92"
        )
        self.broker.subscribe(group=group, subscription=subscription, version=self.version)

    def leave(self, group: str) -> None:
        self.limits.pop(group, None)
        self.broker.filters.unregister(group)

    def persist(self) -> None:
        self.broker.filters.persist()

    def restart(self) -> None:
        """Crash: only what was in the file is kept."""
        self.limits.clear()
        self.broker = self._started()

    def clock_(self, millis: int) -> None:
        self.clock.set(self.clock.now_ms() + millis)

    def pull(self, group: str) -> None:
        if group not in self.limits:
            return
        found: list[bytes] = []
        offset = 0
        while offset < len(self.values):
            answer = self.broker.ask(pull(offset, group=group, sub_version=self.version))
            assert answer is not None
            if answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST:
                self.beat(group, self.limits[group])
                continue
            found += bodies(answer)
            offset = int((answer.ext_fields or {})["nextBeginOffset"])
        wanted = [value for value in self.values if value >= self.limits[group]]
        assert found == [b"%d" % value for value in wanted]


STALE_FILE: list[tuple[object, ...]] = [
    *[("beat", "G", 3), ("persist",), ("clock", 1), ("beat", "G", 10), ("clock", 1)],
    *[("put", [5]), ("restart",), ("beat", "G", 3), ("pull", "G")],
]
"""A crash before the newer expression is in the file; then the consumer returns to the older."""


@given(steps=STEPS)
@example(steps=STALE_FILE)
@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_delivered_does_not_depend_on_bit_maps(
    steps: list[tuple[object, ...]],
) -> None:
    with TemporaryDirectory() as root:
        world = World(Path(root))
        try:
            for name, *arguments in steps:
                getattr(world, "clock_" if name == "clock" else str(name))(*arguments)
            for group in GROUPS:
                world.pull(group)
        finally:
            world.store.shutdown()
