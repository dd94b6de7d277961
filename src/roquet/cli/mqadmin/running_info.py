"""The running info of a consumer, as upstream's tool prints it."""

from __future__ import annotations

from roquet.cli.mqadmin.java import bool_text, concurrent_order, message_queue_text, packed_time
from roquet.remoting.bodies.client import (
    ConsumerRunningInfo,
    ConsumeType,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)

__all__ = ["analysis", "is_push", "running_info_facts", "running_info_text"]

CONSUME_TYPE = "PROP_CONSUME_TYPE"
CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
STUCK_MS = 60_000

QUEUE_HEAD = "%-64s  %-32s  %-4s  %-20s\n"


def is_push(info: ConsumerRunningInfo) -> bool:
    """Whether it is a push consumer."""
    return info.properties.get(CONSUME_TYPE) == ConsumeType.CONSUME_PASSIVELY.value


def running_info_facts(info: ConsumerRunningInfo) -> dict[str, object]:
    """The running info for programs; queues, which cannot be keys in JSON, are members."""
    return {
        "properties": info.properties,
        "subscriptions": info.subscription_set,
        "queues": [{"queue": queue, "state": info.queues[queue]} for queue in sorted(info.queues)],
        "popQueues": [
            {"queue": queue, "state": info.pop_queues[queue]} for queue in sorted(info.pop_queues)
        ],
        "rates": info.status_table,
        "userInfo": info.user_consumer_info,
        "stacks": info.jstack,
    }


def running_info_text(info: ConsumerRunningInfo) -> str:
    """The whole text."""
    parts = ["#Consumer Properties#\n"]
    parts += ["%-40s: %s\n" % (key, info.properties[key]) for key in _settings_order(info)]
    parts.append("\n\n#Consumer Subscription#\n")
    parts += [
        "%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s\n"
        % (number, each.topic, bool_text(each.class_filter_mode), each.sub_string)
        for number, each in enumerate(
            sorted(info.subscription_set, key=lambda each: each.topic or ""), start=1
        )
    ]
    parts.append("\n\n#Consumer Offset#\n")
    parts.append(QUEUE_HEAD % ("#Topic", "#Broker Name", "#QID", "#Consumer Offset"))
    queues = sorted(info.queues)
    parts += [
        "%-32s  %-32s  %-4d  %-20d\n"
        % (queue.topic, queue.broker_name, queue.queue_id, info.queues[queue].commit_offset)
        for queue in queues
    ]
    parts.append("\n\n#Consumer MQ Detail#\n")
    parts.append(QUEUE_HEAD % ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"))
    parts += [
        "%-64s  %-32s  %-4d  %s\n"
        % (queue.topic, queue.broker_name, queue.queue_id, _queue_text(info.queues[queue]))
        for queue in queues
    ]
    parts.append("\n\n#Consumer Pop Detail#\n")
    heads = ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")
    parts.append("%-32s  %-32s  %-4s  %-20s\n" % heads)
    parts += [
        "%-32s  %-32s  %-4d  %s\n"
        % (queue.topic, queue.broker_name, queue.queue_id, _pop_text(info.pop_queues[queue]))
        for queue in sorted(info.pop_queues)
    ]
    return "".join((*parts, _rates_text(info), _last_text(info)))


def _settings_order(info: ConsumerRunningInfo) -> list[str]:
    return concurrent_order(info.properties)


def _rates_text(info: ConsumerRunningInfo) -> str:
    heads = ("#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS")
    row = "%-64s  %14s %14s %14s %14s %18s %25s\n"
    parts = ["\n\n#Consumer RT&TPS#\n", row % ("#Topic", *heads, "#ConsumeFailedMsgsInHour")]
    for topic in sorted(info.status_table):
        each = info.status_table[topic]
        rates = (each.pull_rt_ms, each.pull_tps, each.consume_rt_ms, each.consume_ok_tps)
        cells = (topic, *rates, each.consume_failed_tps, each.consume_failed_msgs)
        parts.append("%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d\n" % cells)
    return "".join(parts)


def _last_text(info: ConsumerRunningInfo) -> str:
    parts = ["\n\n#User Consume Info#\n"]
    parts += [
        "%-40s: %s\n" % (key, info.user_consumer_info[key]) for key in info.user_consumer_info
    ]
    if info.jstack is not None:
        parts.append(f"\n\n#Consumer jstack#\n{info.jstack}")
    return "".join(parts)


def _queue_text(info: ProcessQueueInfo) -> str:
    return (
        f"ProcessQueueInfo [commitOffset={info.commit_offset}, "
        f"cachedMsgMinOffset={info.cached_msg_min_offset}, "
        f"cachedMsgMaxOffset={info.cached_msg_max_offset}, "
        f"cachedMsgCount={info.cached_msg_count}, "
        f"cachedMsgSizeInMiB={info.cached_msg_size_in_mib}, "
        f"transactionMsgMinOffset={info.transaction_msg_min_offset}, "
        f"transactionMsgMaxOffset={info.transaction_msg_max_offset}, "
        f"transactionMsgCount={info.transaction_msg_count}, locked={bool_text(info.locked)}, "
        f"tryUnlockTimes={info.try_unlock_times}, "
        f"lastLockTimestamp={packed_time(info.last_lock_timestamp_ms)}, "
        f"droped={bool_text(info.dropped)}, "
        f"lastPullTimestamp={packed_time(info.last_pull_timestamp_ms)}, "
        f"lastConsumeTimestamp={packed_time(info.last_consume_timestamp_ms)}]"
    )


def _pop_text(info: PopProcessQueueInfo) -> str:
    return (
        f"PopProcessQueueInfo [waitAckCount:{info.wait_ack_count}, "
        f"droped:{bool_text(info.dropped)}, lastPopTimestamp:{info.last_pop_timestamp_ms}]"
    )


def analysis(client_id: str, info: ConsumerRunningInfo, now_ms: int) -> str:
    """What seems wrong with the queues of a consumer."""
    if not is_push(info):
        return ""
    is_orderly = info.properties.get(CONSUME_ORDERLY, "").lower() == "true"
    parts: list[str] = []
    for queue in sorted(info.queues):
        each = info.queues[queue]
        place = f"{client_id} {message_queue_text(queue)}"
        if not is_orderly:
            idle_ms = now_ms - each.last_consume_timestamp_ms
            if idle_ms > STUCK_MS and each.cached_msg_count > 0:
                parts.append(f"{place} can't consume for a while, maybe blocked, {idle_ms}ms\n")
        elif not each.locked:
            unlocked_ms = now_ms - each.last_lock_timestamp_ms
            parts.append(f"{place} can't lock for a while, {unlocked_ms}ms\n")
        elif each.dropped and each.try_unlock_times > 0:
            parts.append(f"{place} unlock {each.try_unlock_times} times, still failed\n")
    return "".join(parts)
