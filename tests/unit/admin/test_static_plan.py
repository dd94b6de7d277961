"""Plans for static topics: which broker gets which queue, and where new leaders start."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from roquet.admin.static_plan import (
    Known,
    add_bystanders,
    check_known,
    decide_offsets,
    logical_progress,
    logical_stats,
    plan_create,
    plan_remap,
)
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from roquet.remoting.bodies.static_topic import TopicRemappingDetailWrapper
from roquet.remoting.bodies.topic import (
    TopicConfigAndQueueMapping,
    TopicOffset,
    TopicStatsTable,
)

NOW_MS = 1_700_000_000_000
A, B, C = "broker-a", "broker-b", "broker-c"


def created(queues: int, *brokers: str) -> dict[str, TopicConfigAndQueueMapping]:
    plan = plan_create("T", queues, brokers, {}, now_ms=NOW_MS)
    return plan.configs


def leaders(known: Known) -> dict[int, str]:
    return {
        queue_id: broker
        for broker, config in known.items()
        if config.mapping_detail is not None
        for queue_id in config.mapping_detail.hosted_queues
        if config.mapping_detail.is_leader(queue_id)
    }


def ends(known: Known, broker: str, **offsets: int) -> TopicStatsTable:
    assert known[broker].mapping_detail is not None
    return TopicStatsTable(
        offset_table={
            MessageQueue("T", broker, int(name[1:])): TopicOffset(max_offset=offset)
            for name, offset in offsets.items()
        }
    )


def test_queues_are_spread_evenly() -> None:
    plan = plan_create("T", 7, [A, B, C], {}, now_ms=NOW_MS)
    assert plan.epoch == NOW_MS + 1000
    assert sorted(leaders(plan.configs)) == list(range(7))
    assert sorted(Counter(leaders(plan.configs).values()).values()) == [2, 2, 3]
    for config in plan.configs.values():
        assert config.mapping_detail is not None
        assert config.write_queue_nums == config.read_queue_nums
        assert config.write_queue_nums == len(config.mapping_detail.hosted_queues)
        assert (config.mapping_detail.epoch, config.mapping_detail.total_queues) == (plan.epoch, 7)
    assert check_known("T", plan.configs) == (plan.epoch, 7)


def test_a_topic_gets_more_queues() -> None:
    known = created(2, A)
    before = leaders(known)
    plan = plan_create("T", 4, [A, B], known, now_ms=NOW_MS)
    after = leaders(plan.configs)
    assert after == {**before, 2: B, 3: B}
    assert plan.epoch == NOW_MS + 2000


@pytest.mark.parametrize(
    ("queues", "fault"),
    [
        (2, "The topic queue num is equal the existed queue num, do nothing"),
        (1, "Cannot decrease the queue num for static topic 1 < 2"),
    ],
)
def test_queues_only_grow(queues: int, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        plan_create("T", queues, [A], created(2, A), now_ms=NOW_MS)


def test_what_brokers_must_agree_on() -> None:
    known = created(2, A, B)
    with pytest.raises(ValueError, match="The topic name is not match for broker"):
        check_known("U", known)
    other = known[B].mapping_detail
    assert other is not None
    other.epoch += 1
    with pytest.raises(ValueError, match="epoch does not match"):
        check_known("T", known)
    other.epoch -= 1
    other.total_queues = 9
    with pytest.raises(ValueError, match="total queue number does not match"):
        check_known("T", known)
    known[B].mapping_detail = None
    with pytest.raises(ValueError, match="Mapping info should not be null in broker broker-b"):
        check_known("T", known)


def test_a_missing_broker_prevents_a_change() -> None:
    known = created(4, A, B)
    del known[B]
    with pytest.raises(ValueError, match="does not match the real hosted queues"):
        plan_remap("T", known, [A], now_ms=NOW_MS)


def test_as_few_queues_as_possible_move() -> None:
    known = created(6, A, B)
    before = leaders(known)
    plan = plan_remap("T", known, [A, B, C], now_ms=NOW_MS)
    after = leaders(plan.configs)
    assert Counter(after.values()) == {A: 2, B: 2, C: 2}
    assert sum(before[queue_id] != after[queue_id] for queue_id in after) == 2
    assert plan.map_in == [C]
    assert sorted(plan.map_out) == [A, B]


def test_a_remapping_without_a_move_changes_epochs_only() -> None:
    plan = plan_remap("T", created(4, A, B), [A, B], now_ms=NOW_MS)
    assert (plan.map_in, plan.map_out) == ([], [])
    assert plan.epoch == NOW_MS + 2000


def test_new_leaders_start_after_old_ones() -> None:
    plan = plan_remap("T", created(2, A), [B], now_ms=NOW_MS)
    assert leaders(plan.configs) == {0: B, 1: B}
    decide_offsets(plan, A, ends(plan.configs, A, q0=4999, q1=5000))
    detail = plan.configs[B].mapping_detail
    assert detail is not None
    assert [detail.hosted_queues[each][-1].logic_offset for each in (0, 1)] == [10_000, 20_000]


def test_a_plan_can_be_carried_out_from_its_file() -> None:
    plan = plan_remap("T", created(1, A), [B], now_ms=NOW_MS)
    plan = decode_body(TopicRemappingDetailWrapper, encode_body(plan))
    decide_offsets(plan, A, ends(plan.configs, A, q0=3))
    detail = plan.configs[B].mapping_detail
    assert detail is not None
    assert detail.hosted_queues[0][-1].logic_offset == 10_000


def test_mappings_of_former_leaders_are_ignored() -> None:
    """A lost queue 0 to B long ago and never learned where B starts; now it loses queue 1."""
    plan = plan_remap("T", created(2, A), [A, B], now_ms=NOW_MS)
    stale = msgspec.json.decode(encode_body(plan, standard=True), type=TopicRemappingDetailWrapper)
    decide_offsets(plan, A, ends(plan.configs, A, q0=3, q1=3))
    known = {A: stale.configs[A], B: plan.configs[B]}
    moved = next(queue_id for queue_id, broker in leaders(known).items() if broker == B)
    plan = plan_remap("T", known, [B], now_ms=NOW_MS)
    decide_offsets(plan, A, ends(plan.configs, A, q0=20_003, q1=20_003))
    detail = plan.configs[B].mapping_detail
    assert detail is not None
    offsets = {queue_id: each[-1].logic_offset for queue_id, each in detail.hosted_queues.items()}
    assert offsets == {moved: 10_000, 1 - moved: 30_000}


def test_all_brokers_of_the_cluster_know_the_topic() -> None:
    plan = plan_create("T", 2, [A], {}, now_ms=NOW_MS)
    add_bystanders(plan, [[A, B], [C]])
    assert sorted(plan.configs) == [A, B]
    bystander = plan.configs[B]
    assert (bystander.read_queue_nums, bystander.write_queue_nums) == (0, 0)
    assert check_known("T", plan.configs) == (plan.epoch, 2)


def test_offsets_are_shown_by_logical_queue() -> None:
    plan = plan_remap("T", created(1, A), [B], now_ms=NOW_MS)
    decide_offsets(plan, A, ends(plan.configs, A, q0=5))
    first, second = MessageQueue("T", A, 0), MessageQueue("T", B, 0)
    logical = MessageQueue("T", "__syslo__global__", 0)
    stats = TopicStatsTable(
        offset_table={
            first: TopicOffset(max_offset=5, min_offset=2, last_update_timestamp_ms=7),
            second: TopicOffset(max_offset=3, last_update_timestamp_ms=9),
        }
    )
    assert logical_stats(plan.configs, stats) == {
        logical: TopicOffset(max_offset=10_003, min_offset=2, last_update_timestamp_ms=9)
    }
    progress = ConsumeStats(
        offset_table={
            first: OffsetWrapper(
                broker_offset=5, consumer_offset=4, last_timestamp_ms=7, pull_offset=5
            ),
            second: OffsetWrapper(broker_offset=3, consumer_offset=-1, pull_offset=-1),
        }
    )
    assert logical_progress(plan.configs, progress) == {
        logical: OffsetWrapper(
            broker_offset=10_003, consumer_offset=4, last_timestamp_ms=7, pull_offset=5
        )
    }
    progress.offset_table[second].consumer_offset = 2
    assert logical_progress(plan.configs, progress)[logical].consumer_offset == 10_002
