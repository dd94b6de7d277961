"""Plans for static topics: which broker gets which logical queue.

Upstream's TopicQueueMappingUtils, as far as its admin tool uses it. Checks the mappings that
brokers have of a static topic, and distributes its queues: as evenly as possible, with as few moves
as possible, and no broker both gains and loses queues. Pure functions of the brokers' responses;
they raise :class:`ValueError` with upstream's messages.
"""

from __future__ import annotations

import zlib
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from roquet.model.message_queue import MessageQueue
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    check_items,
    find_item,
    mock_broker_name,
    round_up_to_block,
)
from roquet.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from roquet.remoting.bodies.static_topic import (
    CREATE_OR_UPDATE,
    REMAPPING,
    TopicRemappingDetailWrapper,
)
from roquet.remoting.bodies.topic import (
    TopicConfigAndQueueMapping,
    TopicOffset,
    TopicStatsTable,
)

__all__ = [
    "Known",
    "add_bystanders",
    "check_known",
    "decide_offsets",
    "logical_progress",
    "logical_stats",
    "plan_create",
    "plan_remap",
    "state_of",
]

EPOCH_STEP = 1000
LAST_OFFSET = (1 << 63) - 1

Known: TypeAlias = Mapping[str, TopicConfigAndQueueMapping]
"""The mappings that brokers have of a static topic, by broker name."""


class _Led(NamedTuple):
    """A logical queue and the broker that leads it."""

    detail: TopicQueueMappingDetail
    broker_name: str
    items: list[LogicQueueMappingItem]


# ------------------------------------------------------------------------------------- checking


def check_known(topic: str, known: Known) -> tuple[int, int]:
    """Return the epoch and the number of queues that all brokers agree on.

    Raises:
        ValueError: They do not agree, or the topic is not static.
    """
    agreed: TopicQueueMappingDetail | None = None
    for broker, config in known.items():
        detail = config.mapping_detail
        if detail is None:
            raise ValueError(f"Mapping info should not be null in broker {broker}")
        if detail.broker_name != broker:
            raise ValueError(f"The broker name is not equal {broker} != {detail.broker_name} ")
        if detail.dirty:
            raise ValueError(f"The mapping info is dirty in broker  {broker}")
        if config.topic_name != detail.topic:
            raise ValueError(f"The topic name is inconsistent in broker  {broker}")
        if detail.topic != topic:
            raise ValueError(f"The topic name is not match for broker  {broker}")
        if agreed is not None:
            _check_agrees(agreed, detail)
        agreed = detail
    return (0, 0) if agreed is None else (agreed.epoch, agreed.total_queues)


def _check_agrees(agreed: TopicQueueMappingDetail, detail: TopicQueueMappingDetail) -> None:
    broker = detail.broker_name
    if detail.scope != agreed.scope:
        raise ValueError(f"scope does not match {detail.scope} != {agreed.scope} in {broker}")
    if detail.epoch != agreed.epoch:
        raise ValueError(f"epoch does not match {agreed.epoch} != {detail.epoch} in {broker}")
    if detail.total_queues != agreed.total_queues:
        raise ValueError(
            f"total queue number does not match {agreed.total_queues} != {detail.total_queues} "
            f"in {broker}"
        )


def _led_queues(known: Known, *, lenient: bool = False) -> dict[int, _Led]:
    """Return the logical queues with their leaders.

    Args:
        known: The mappings of the brokers.
        lenient: Whether to accept gaps and duplicates; of two leaders of a queue, the later epoch
            wins.

    Raises:
        ValueError: Their number is wrong, or a broker's mapping is inconsistent.
    """
    details = [each.mapping_detail for each in known.values() if each.mapping_detail is not None]
    details.sort(key=lambda detail: -detail.epoch)
    led: dict[int, _Led] = {}
    for detail in details:
        for queue_id, items in detail.hosted_queues.items():
            check_items(items)
            name = detail.broker_name or ""
            if not items or items[-1].broker_name != name:
                continue
            if queue_id in led and not lenient:
                raise ValueError(f"The queue id is duplicated in broker {name} {name}")
            led.setdefault(queue_id, _Led(detail, name, items))
    if not lenient:
        total = max((detail.total_queues for detail in details), default=0)
        if total != len(led):
            raise ValueError(
                "The total queue number in config does not match the real hosted queues "
                f"{total} != {len(led)}"
            )
        missing = next((queue_id for queue_id in range(total) if queue_id not in led), None)
        if missing is not None:
            raise ValueError(f"The queue number {missing} is not in globalIdMap")
    _check_not_shared(led)
    return dict(sorted(led.items()))


def _check_not_shared(led: Mapping[int, _Led]) -> None:
    owners: dict[str, int] = {}
    for queue_id, each in led.items():
        for item in each.items:
            physical = f"{item.broker_name}-{item.queue_id}"
            if physical in owners:
                raise ValueError(
                    f"Topic {each.detail.topic} global queue id {queue_id} and "
                    f"{owners[physical]} shared the same physical queue {physical}"
                )
            owners[physical] = queue_id


def _check_physical(known: Known) -> None:
    for config in known.values():
        if config.read_queue_nums < config.write_queue_nums:
            raise ValueError("Read queues is smaller than write queues")
        assert config.mapping_detail is not None, "checked before"
        for item in _all_items(config.mapping_detail):
            if item.start_offset != 0:
                raise ValueError("The start offset does not begin from 0")
            owner = known.get(item.broker_name or "")
            if owner is None:
                raise ValueError("The broker of item does not exist")
            if item.queue_id >= owner.write_queue_nums:
                raise ValueError("The physical queue id is overflow the write queues")


def _all_items(detail: TopicQueueMappingDetail) -> Iterable[LogicQueueMappingItem]:
    return (item for items in detail.hosted_queues.values() for item in items)


def _checked(topic: str, known: Known) -> tuple[int, int, dict[int, _Led]]:
    epoch, total = check_known(topic, known)
    led = _led_queues(known)
    _check_physical(known)
    return epoch, total, led


# ------------------------------------------------------------------------------------- planning


def state_of(
    topic: str, known: Known, *, epoch: int, kind: str = CREATE_OR_UPDATE
) -> TopicRemappingDetailWrapper:
    """Return the current mappings of the brokers in the form of a plan."""
    return TopicRemappingDetailWrapper(configs=dict(known), epoch=epoch, topic=topic, kind=kind)


def plan_create(
    topic: str, queues: int, targets: Collection[str], known: Known, *, now_ms: int
) -> TopicRemappingDetailWrapper:
    """Plan a new static topic, or more queues for an existing one.

    Args:
        topic: Its name.
        queues: How many queues it will have.
        targets: The brokers that get new queues.
        known: The mappings of the brokers; empty for a new topic.
        now_ms: The current time, from which epochs are derived.

    Raises:
        ValueError: Such a plan is impossible.
    """
    for broker, config in known.items():
        detail = config.mapping_detail
        if detail is not None and detail.hosted_queues and broker not in targets:
            raise ValueError(f"The existed broker {broker} does not in target brokers ")
    epoch, led = now_ms, dict[int, _Led]()
    if known:
        epoch, _, led = _checked(topic, known)
    if queues < len(led):
        raise ValueError(f"Cannot decrease the queue num for static topic {queues} < {len(led)}")
    if queues == len(led):
        raise ValueError("The topic queue num is equal the existed queue num, do nothing")
    configs = dict(known)
    counts = Counter(dict.fromkeys(targets, 0))
    counts.update(each.broker_name for each in led.values())
    for queue_id in range(len(led), queues):
        broker = min(counts, key=lambda name: (counts[name], _spread(topic, name)))
        counts[broker] += 1
        _grow(configs, topic, broker, queue_id, [])
    plan = state_of(topic, configs, epoch=max(epoch + EPOCH_STEP, now_ms))
    _stamp(plan, queues)
    _checked(topic, plan.configs)
    return plan


def plan_remap(
    topic: str, known: Known, targets: Collection[str], *, now_ms: int
) -> TopicRemappingDetailWrapper:
    """Plan moving the queues of a static topic to other brokers.

    Args:
        topic: Its name.
        known: The mappings of the brokers.
        targets: The brokers that will lead its queues.
        now_ms: The current time, from which epochs are derived.

    Raises:
        ValueError: Such a plan is impossible.
    """
    epoch, total, led = _checked(topic, known)
    places = _places(topic, led, targets, total)
    configs = dict(known)
    map_in, map_out = dict[str, None](), dict[str, None]()
    for queue_id, broker in sorted(places.items()):
        before = led[queue_id]
        if before.broker_name == broker:
            continue
        map_in[broker] = map_out[before.broker_name] = None
        items = _grow(configs, topic, broker, queue_id, before.items)
        old = configs[before.broker_name].mapping_detail
        assert old is not None, "checked before"
        # The same list: the offset decided for the new leader shows in both.
        old.hosted_queues[queue_id] = items
    plan = state_of(topic, configs, epoch=max(epoch + EPOCH_STEP, now_ms), kind=REMAPPING)
    plan.map_in, plan.map_out = list(map_in), list(map_out)
    _stamp(plan, total)
    _, _, led = _checked(topic, plan.configs)
    if not {each.broker_name for each in led.values()} <= set(targets):
        raise ValueError("The leader broker does not in target broker")
    return plan


def _places(
    topic: str, led: Mapping[int, _Led], targets: Collection[str], total: int
) -> dict[int, str]:
    """Choose which broker will lead each queue."""
    before = Counter(each.broker_name for each in led.values())
    order = sorted(targets, key=lambda name: (-before[name], _spread(topic, name)))
    each, rest = divmod(total, len(order))
    wanted = {name: each + (1 if at < rest else 0) for at, name in enumerate(order)}
    places: dict[int, str] = {}
    waiting: deque[int] = deque()
    for queue_id, queue in led.items():
        if wanted.get(queue.broker_name, 0) > 0:
            wanted[queue.broker_name] -= 1
            places[queue_id] = queue.broker_name
        else:
            waiting.append(queue_id)
    for name in order:
        for _ in range(wanted[name]):
            places[waiting.popleft()] = name
    return places


def _spread(topic: str, broker: str) -> int:
    """Order brokers differently for each topic, so that none always gets the extra queue."""
    return zlib.crc32(f"{topic}@{broker}".encode())


def _grow(
    configs: dict[str, TopicConfigAndQueueMapping],
    topic: str,
    broker: str,
    queue_id: int,
    before: list[LogicQueueMappingItem],
) -> list[LogicQueueMappingItem]:
    """Give a broker one more physical queue, appended to the items of a logical queue."""
    config = configs.get(broker)
    if config is None:
        config = configs[broker] = _empty(topic, broker)
    assert config.mapping_detail is not None, "checked before"
    item = LogicQueueMappingItem(
        broker_name=broker,
        generation=before[-1].generation + 1 if before else 0,
        logic_offset=-1 if before else 0,
        queue_id=config.write_queue_nums,
    )
    config.write_queue_nums += 1
    config.read_queue_nums += 1
    items = [*before, item]
    config.mapping_detail.hosted_queues[queue_id] = items
    return items


def _empty(topic: str, broker: str) -> TopicConfigAndQueueMapping:
    settings = TopicConfig(topic_name=topic)
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        perm=settings.perm,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(topic=topic, broker_name=broker),
    )


def _stamp(plan: TopicRemappingDetailWrapper, total: int) -> None:
    for config in plan.configs.values():
        assert config.mapping_detail is not None, "checked before"
        config.mapping_detail.epoch = plan.epoch
        config.mapping_detail.total_queues = total


def add_bystanders(plan: TopicRemappingDetailWrapper, clusters: Iterable[Collection[str]]) -> None:
    """Add the topic to all brokers of the same clusters, even those without a queue of it.

    Clients find all brokers of a topic by its route, and send them their subscriptions.
    """
    total = next(
        each.mapping_detail.total_queues for each in plan.configs.values() if each.mapping_detail
    )
    for cluster in clusters:
        if plan.configs.keys() & set(cluster):
            for broker in cluster:
                plan.configs.setdefault(broker, _empty(plan.topic, broker))
    _stamp(plan, total)


def decide_offsets(plan: TopicRemappingDetailWrapper, broker: str, stats: TopicStatsTable) -> None:
    """Decide the start offsets of the new leaders of the queues that a broker has lost.

    Args:
        plan: A remapping that the broker already has, so that it accepts no more messages.
        broker: The broker.
        stats: Where its physical queues end.

    Raises:
        ValueError: The stats lack a queue, or its end is too small.
    """
    detail = plan.configs[broker].mapping_detail
    assert detail is not None, "checked before"
    for queue_id, items in detail.hosted_queues.items():
        if len(items) < 2 or not _is_undecided(plan, queue_id, items[-1]):
            continue
        old, new = items[-2:]
        ends = stats.offset_table.get(MessageQueue(plan.topic, old.broker_name or "", old.queue_id))
        if ends is None:
            raise ValueError(f"Cannot get the max offset for old leader {old}")
        if ends.max_offset < old.start_offset:
            raise ValueError(f"The max offset is smaller then the start offset {old}")
        new.logic_offset = round_up_to_block(old.logical(ends.max_offset))
        owner = plan.configs[new.broker_name or ""].mapping_detail
        assert owner is not None, "checked before"
        owner.hosted_queues[queue_id] = items


def _is_undecided(
    plan: TopicRemappingDetailWrapper, queue_id: int, leader: LogicQueueMappingItem
) -> bool:
    """Return whether a queue's new leader still lacks its start offset."""
    config = plan.configs.get(leader.broker_name or "")
    if config is None or config.mapping_detail is None:
        return False
    items = config.mapping_detail.hosted_queues.get(queue_id)
    return bool(items and items[-1].generation == leader.generation and items[-1].logic_offset < 0)


# -------------------------------------------------------------------------------- logical views


def logical_stats(known: Known, physical: TopicStatsTable) -> dict[MessageQueue, TopicOffset]:
    """Return where logical queues begin and end, computed from the physical ones."""
    found: dict[MessageQueue, TopicOffset] = {}
    for queue_id, led in _led_queues(known, lenient=True).items():
        first, last = find_item(led.items, 0), find_item(led.items, LAST_OFFSET)
        if first is None or last is None:
            continue
        begin = physical.offset_table.get(_queue(led, first))
        end = physical.offset_table.get(_queue(led, last))
        if begin is not None and end is not None:
            found[_logical_queue(led, queue_id)] = TopicOffset(
                last_update_timestamp_ms=end.last_update_timestamp_ms,
                max_offset=max(last.logical(end.max_offset), 0),
                min_offset=max(first.logical_loosely(begin.min_offset), 0),
            )
    return found


def logical_progress(known: Known, physical: ConsumeStats) -> dict[MessageQueue, OffsetWrapper]:
    """Return a group's progress in logical queues, computed from the physical ones."""
    found: dict[MessageQueue, OffsetWrapper] = {}
    for queue_id, led in _led_queues(known, lenient=True).items():
        broker_offset = consumer_offset = pull_offset = last_ms = -1
        for item in reversed(led.items):
            part = physical.offset_table.get(_queue(led, item))
            if part is None or item.logic_offset < 0:
                continue
            if broker_offset < 0:
                broker_offset = item.logical(part.broker_offset)
            if consumer_offset < 0 <= part.consumer_offset:
                consumer_offset = item.logical(part.consumer_offset)
                last_ms = part.last_timestamp_ms
            if part.pull_offset >= 0:
                pull_offset = max(pull_offset, item.logical(part.pull_offset))
        if broker_offset >= 0 and consumer_offset >= 0:
            found[_logical_queue(led, queue_id)] = OffsetWrapper(
                broker_offset=broker_offset,
                consumer_offset=consumer_offset,
                last_timestamp_ms=last_ms,
                pull_offset=max(pull_offset, consumer_offset),
            )
    return found


def _queue(led: _Led, item: LogicQueueMappingItem) -> MessageQueue:
    return MessageQueue(led.detail.topic or "", item.broker_name or "", item.queue_id)


def _logical_queue(led: _Led, queue_id: int) -> MessageQueue:
    return MessageQueue(led.detail.topic or "", mock_broker_name(led.detail.scope), queue_id)
