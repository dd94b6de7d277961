"""How many replicas are enough."""

from __future__ import annotations

import pytest

from roquet.ha.in_sync import count_replicas
from roquet.store.config import MessageStoreConfig, replace

END = 1 << 30
FAR = END - (256 << 20)


@pytest.mark.parametrize(
    ("settings", "acks", "in_sync", "enough", "replicated"),
    [
        ({}, [], 1, False, -1),
        ({}, [END], 2, True, END),
        ({}, [-1], 1, False, -1),
        ({}, [FAR], 1, False, FAR),
        ({}, [FAR + 1, END], 3, True, END),
        ({"in_sync_replicas": 3}, [END], 2, False, -1),
        ({"in_sync_replicas": 3}, [END, END - 5], 3, True, END - 5),
        ({"in_sync_replicas": 3}, [END, FAR], 2, False, FAR),
    ],
)
def test_replicated_offset_is_that_of_the_slowest_required_slave(
    settings: dict[str, object], acks: list[int], in_sync: int, *, enough: bool, replicated: int
) -> None:
    found = count_replicas(replace(MessageStoreConfig(), **settings), END, acks)
    assert (found.in_sync, found.is_enough, found.replicated_offset) == (
        in_sync,
        enough,
        replicated,
    )


def test_auto_in_sync_replicas_lowers_the_requirement_to_the_minimum() -> None:
    alone = MessageStoreConfig(in_sync_replicas=2, auto_in_sync_replicas=True)
    assert count_replicas(alone, END, []).is_enough
    assert count_replicas(alone, END, []).replicated_offset > END
    assert count_replicas(alone, END, [END - 1]).replicated_offset == END - 1
    two = MessageStoreConfig(in_sync_replicas=3, min_in_sync_replicas=2, auto_in_sync_replicas=True)
    assert not count_replicas(two, END, []).is_enough
    assert count_replicas(two, END, [END]).replicated_offset == END
    assert count_replicas(two, END, [END, END - 1]).replicated_offset == END - 1


def test_puts_are_refused_below_min_in_sync_replicas() -> None:
    config = MessageStoreConfig(min_in_sync_replicas=2)
    assert not count_replicas(config, END, []).is_accepting
    assert not count_replicas(config, END, [FAR]).is_accepting
    assert count_replicas(config, END, [END]).is_accepting


def test_only_confirmed_reports_count_as_replicated() -> None:
    found = count_replicas(MessageStoreConfig(), END, [END - 9, END], [END - 9, -1])
    assert (found.in_sync, found.replicated_offset) == (3, END - 9)
