"""Static topics: logical queues, and the physical queues of brokers that hold their messages.

A static topic has a fixed number of logical queues. Each is a chain of items; an item is a physical
queue of one broker that holds a stretch of the logical queue, and the last item, the leader, takes
new messages:

.. code-block:: text

    logical queue 0    0 ............ 41 ] gap [ 10000 ......... 10007 ...
    item               gen 0, broker-a, queue 0  gen 1, broker-b, queue 3
    physical offset    0 ............ 41         0 ............. 7 ...

A remapping appends an item. Its logical offset is -1 until the old leader takes no more messages
and its end is known; then it is rounded up to the next block, so that messages which were still on
their way to the old leader have room. Consumers skip the gap.

Owns the structs, in the form in which they are sent and stored, the conversion of offsets, and the
checks of a chain. The checks raise :class:`ValueError` with upstream's words. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

__all__ = [
    "BLOCK_OFFSETS",
    "GLOBAL_SCOPE",
    "MOCK_BROKER_PREFIX",
    "LogicQueueMappingItem",
    "TopicQueueMappingDetail",
    "TopicQueueMappingInfo",
    "check_items",
    "check_successors",
    "find_item",
    "leaders_of",
    "mock_broker_name",
    "next_item",
    "round_up_to_block",
]

GLOBAL_SCOPE = "__global__"

MOCK_BROKER_PREFIX = "__syslo__"

BLOCK_OFFSETS = 10_000
"""A leader's logical offsets start at a multiple of this."""

_UNSET = -1


class TopicQueueMappingInfo(Struct, rename="camel", kw_only=True):
    """Which queues of a static topic a broker leads.

    Attributes:
        current_ids: By logical queue id: the broker's own queue id.
        epoch: Grows with every change; the mapping with the greater epoch wins.
    """

    broker_name: str | None = field(default=None, name="bname")
    current_ids: dict[int, int] = field(default_factory=dict, name="currIdMap")
    dirty: bool = False
    epoch: int = 0
    scope: str = GLOBAL_SCOPE
    topic: str | None = None
    total_queues: int = 0


class LogicQueueMappingItem(Struct, rename="camel", kw_only=True):
    """A physical queue that holds a stretch of a logical queue.

    Attributes:
        end_offset: The physical offset after its last message; -1 while undecided.
        generation: Grows from item to item.
        logic_offset: The logical offset of its first message; -1 while undecided.
        start_offset: The physical offset of its first message.
    """

    broker_name: str | None = field(default=None, name="bname")
    end_offset: int = _UNSET
    generation: int = field(default=0, name="gen")
    logic_offset: int = 0
    queue_id: int = 0
    start_offset: int = 0
    time_of_end_ms: int = field(default=_UNSET, name="timeOfEnd")
    time_of_start_ms: int = field(default=_UNSET, name="timeOfStart")

    @property
    def is_end_decided(self) -> bool:
        """Whether it accepts no more messages and its end is known."""
        return self.end_offset > self.start_offset

    @property
    def offset_delta(self) -> int:
        """What to add to a physical offset to get the logical one."""
        return self.logic_offset - self.start_offset

    def logical(self, physical_offset: int) -> int:
        """The logical offset of a physical one.

        Example:
            >>> LogicQueueMappingItem(logic_offset=10000).logical(3)
            10003
        """
        return self.logic_offset + max(physical_offset - self.start_offset, 0)

    def logical_loosely(self, physical_offset: int) -> int:
        """Like :meth:`logical`, but at most the end; -1 while the start is undecided.

        Example:
            >>> LogicQueueMappingItem(logic_offset=-1).logical_loosely(3)
            -1
        """
        if self.logic_offset < 0:
            return _UNSET
        if self.start_offset <= self.end_offset < physical_offset:
            physical_offset = self.end_offset
        return self.logical(physical_offset)

    def physical(self, logical_offset: int) -> int:
        """The physical offset of a logical one."""
        return logical_offset - self.logic_offset + self.start_offset

    @property
    def max_logical(self) -> int:
        """The logical offset after its last message, as far as it is decided."""
        return self.logic_offset + max(self.end_offset - self.start_offset, 0)


class TopicQueueMappingDetail(TopicQueueMappingInfo, kw_only=True):
    """Everything a broker knows about a static topic.

    Attributes:
        hosted_queues: By logical queue id: the items of the queues that the broker leads or led.
    """

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = field(default_factory=dict)

    def is_leader(self, queue_id: int) -> bool:
        """Whether the broker accepts new messages of a logical queue."""
        items = self.hosted_queues.get(queue_id)
        return bool(items and items[-1].broker_name == self.broker_name)

    def to_info(self) -> TopicQueueMappingInfo:
        """The part that name servers and clients need."""
        return TopicQueueMappingInfo(
            broker_name=self.broker_name,
            current_ids={
                queue_id: items[-1].queue_id
                for queue_id, items in self.hosted_queues.items()
                if self.is_leader(queue_id)
            },
            epoch=self.epoch,
            scope=self.scope,
            topic=self.topic,
            total_queues=self.total_queues,
        )


def mock_broker_name(scope: str = GLOBAL_SCOPE) -> str:
    """The broker name that clients see in logical queues.

    Example:
        >>> mock_broker_name()
        '__syslo__global__'
    """
    return MOCK_BROKER_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def leaders_of(infos: Iterable[TopicQueueMappingInfo]) -> dict[int, TopicQueueMappingInfo]:
    """By logical queue id: the mapping of the broker that leads it, by the latest epoch."""
    leaders: dict[int, TopicQueueMappingInfo] = {}
    for info in infos:
        for queue_id in info.current_ids:
            known = leaders.get(queue_id)
            if known is None or known.epoch <= info.epoch:
                leaders[queue_id] = info
    return leaders


def find_item(
    items: Sequence[LogicQueueMappingItem], logical_offset: int
) -> LogicQueueMappingItem | None:
    """The item that holds a logical offset; the first item for an offset before all.

    Items with an undecided logical offset hold none.

    Example:
        >>> items = [LogicQueueMappingItem(), LogicQueueMappingItem(generation=1, logic_offset=-1)]
        >>> found = find_item(items, 10000)
        >>> found is items[0]
        True
    """
    decided = [item for item in items if item.logic_offset >= 0]
    for item in reversed(decided):
        if logical_offset >= item.logic_offset:
            return item
    return decided[0] if decided else None


def next_item(
    items: Sequence[LogicQueueMappingItem], current: LogicQueueMappingItem
) -> LogicQueueMappingItem | None:
    """The item after another, if its logical offset is decided."""
    for at, item in enumerate(items[:-1]):
        if item.generation == current.generation and item.logic_offset >= 0:
            following = items[at + 1]
            return following if following.logic_offset >= 0 else None
    return None


def round_up_to_block(logical_offset: int, block_offsets: int = BLOCK_OFFSETS) -> int:
    """Where the next item starts if the last one ends here: at least half a block further on.

    Example:
        >>> round_up_to_block(0), round_up_to_block(4999), round_up_to_block(5000)
        (10000, 10000, 20000)
    """
    blocks, rest = divmod(logical_offset, block_offsets)
    return (blocks + (1 if rest < block_offsets // 2 else 2)) * block_offsets


def check_items(items: Sequence[LogicQueueMappingItem]) -> None:
    """Check that the items of a logical queue can be a chain.

    Raises:
        ValueError: They cannot.
    """
    following: LogicQueueMappingItem | None = None
    for item in reversed(items):
        if min(item.start_offset, item.generation, item.queue_id) < 0:
            raise ValueError("The field is illegal, should not be negative")
        if following is not None and item.logic_offset < 0:
            raise ValueError("The non-latest item has negative logic offset")
        if following is not None and item.generation >= following.generation:
            raise ValueError("The gen does not increase monotonically")
        if _UNSET != item.end_offset < item.start_offset:
            raise ValueError("The endOffset is smaller than the start offset")
        if following is not None and following.logic_offset != _UNSET:
            if item.logic_offset >= following.logic_offset:
                raise ValueError("The base logic offset does not increase monotonically")
            if item.max_logical >= following.logic_offset:
                raise ValueError("The max logic offset does not increase monotonically")
        following = item


def check_successors(
    old: Sequence[LogicQueueMappingItem],
    new: Sequence[LogicQueueMappingItem],
    *,
    is_same_epoch: bool,
) -> None:
    """Check that items may replace others: known facts about an item never change.

    Raises:
        ValueError: They may not.
    """
    if not old:
        return
    if not new:
        raise ValueError("The new item list is null or empty")
    known = {item.generation: item for item in old}
    for item in new:
        before = known.get(item.generation)
        if before is None:
            continue
        is_same = (before.broker_name, before.queue_id, before.start_offset) == (
            item.broker_name,
            item.queue_id,
            item.start_offset,
        )
        if not is_same or before.logic_offset not in {_UNSET, item.logic_offset}:
            raise ValueError(f"The item of generation {item.generation} is not the known one")
    if is_same_epoch and _identity(new[-1]) != _identity(old[-1]):
        raise ValueError("The new leader is different but epoch equal")


def _identity(item: LogicQueueMappingItem) -> tuple[int, str | None, int, int]:
    return item.generation, item.broker_name, item.queue_id, item.start_offset
