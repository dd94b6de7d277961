"""Logical queues: offsets, the items that hold them, and what a chain of items may be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from roquet.model.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    check_items,
    check_successors,
    find_item,
    leaders_of,
    mock_broker_name,
    next_item,
)


def item(
    generation: int = 0,
    logic_offset: int = 0,
    *,
    broker: str = "broker-a",
    queue_id: int = 0,
    start: int = 0,
    end: int = -1,
) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(
        broker_name=broker,
        end_offset=end,
        generation=generation,
        logic_offset=logic_offset,
        queue_id=queue_id,
        start_offset=start,
    )


def test_offsets_are_converted_both_ways() -> None:
    at = item(1, 10_000, start=5)
    assert [at.logical(offset) for offset in (0, 5, 7)] == [10_000, 10_000, 10_002]
    assert at.physical(10_002) == 7
    assert at.offset_delta == 9_995


def test_a_loose_offset_ends_at_the_end() -> None:
    at = item(0, 100, start=2, end=5)
    assert [at.logical_loosely(offset) for offset in (1, 4, 9)] == [100, 102, 103]
    assert item(1, -1).logical_loosely(4) == -1
    assert at.max_logical == 103
    assert at.is_end_decided
    assert item(0, 100).max_logical == 100


def test_the_item_of_an_offset() -> None:
    items = [item(1, 10_000), item(2, 20_000), item(3, -1)]
    found = [find_item(items, offset) for offset in (0, 10_000, 19_999, 20_000, 99_999)]
    assert found == [items[0], items[0], items[0], items[1], items[1]]
    assert find_item([item(0, -1)], 0) is None
    assert find_item([], 0) is None


def test_the_next_item_must_have_its_offset() -> None:
    items = [item(1, 10_000), item(2, 20_000), item(3, -1)]
    assert next_item(items, items[0]) is items[1]
    assert next_item(items, items[1]) is None
    assert next_item(items, items[2]) is None


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([item(start=-1)], "The field is illegal, should not be negative"),
        ([item(queue_id=-1)], "The field is illegal, should not be negative"),
        ([item(0, -1), item(1, 9)], "The non-latest item has negative logic offset"),
        ([item(1, 0), item(1, 9)], "The gen does not increase monotonically"),
        ([item(start=5, end=3)], "The endOffset is smaller than the start offset"),
        ([item(0, 9), item(1, 9)], "The base logic offset does not increase monotonically"),
        ([item(0, 0, end=9), item(1, 9)], "The max logic offset does not increase monotonically"),
    ],
)
def test_invalid_chains(items: Sequence[LogicQueueMappingItem], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        check_items(items)


def test_chains() -> None:
    check_items([])
    check_items([item()])
    check_items([item(0, 0, end=8), item(1, 10_000), item(2, -1)])


def test_known_facts_of_an_item_are_kept() -> None:
    old = [item(0, 0), item(1, -1, broker="broker-b")]
    check_successors(old, [item(0, 0), item(1, 10_000, broker="broker-b")], is_same_epoch=True)
    check_successors(old, [item(1, 10_000, broker="broker-b"), item(2, -1)], is_same_epoch=False)
    check_successors([], [item()], is_same_epoch=True)
    with pytest.raises(ValueError, match="The new item list is null or empty"):
        check_successors(old, [], is_same_epoch=False)
    with pytest.raises(ValueError, match="The new leader is different but epoch equal"):
        check_successors(old, [*old, item(2, -1)], is_same_epoch=True)
    with pytest.raises(ValueError, match="generation 0 is not the known one"):
        check_successors(old, [item(0, 0, queue_id=3), old[1]], is_same_epoch=False)
    with pytest.raises(ValueError, match="generation 1 is not the known one"):
        check_successors([item(1, 10_000)], [item(1, 20_000)], is_same_epoch=False)


def test_clients_see_only_the_queues_that_a_broker_leads() -> None:
    detail = TopicQueueMappingDetail(
        broker_name="broker-a",
        epoch=7,
        topic="T",
        total_queues=3,
        hosted_queues={
            0: [item(queue_id=2)],
            1: [item(), item(1, 10_000, broker="broker-b")],
            2: [],
        },
    )
    assert detail.to_info() == TopicQueueMappingInfo(
        broker_name="broker-a", current_ids={0: 2}, epoch=7, topic="T", total_queues=3
    )


def test_the_later_epoch_leads() -> None:
    infos = [
        TopicQueueMappingInfo(broker_name=name, current_ids=dict.fromkeys(ids, 0), epoch=epoch)
        for name, ids, epoch in (("a", (0, 1), 5), ("b", (1, 2), 9), ("c", (2,), 3))
    ]
    leaders = leaders_of(infos)
    assert {queue_id: info.broker_name for queue_id, info in leaders.items()} == {
        0: "a",
        1: "b",
        2: "b",
    }


def test_names_of_scopes() -> None:
    assert mock_broker_name("other") == "__syslo__other"
