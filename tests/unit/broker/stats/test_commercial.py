"""Counters per account."""

from __future__ import annotations

from pathlib import Path

from roquet.broker.hooks import ConsumeMessageContext, StatsType
from roquet.broker.stats.broker_stats import BrokerStats
from roquet.broker.stats.commercial import CommercialConsumeHook, CommercialSendHook
from roquet.runtime.clock import ManualClock
from roquet.store.results import PutMessageResult, PutMessageStatus
from tests.unit.broker.processor.send_kit import broker


def total(stats: BrokerStats, name: str, key: str) -> int:
    return stats.total(f"COMMERCIAL_{name}", key)


def test_sends(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.processor.send_hooks.append(
            CommercialSendHook(made.stats, base_count=3, unit_bytes=100)
        )
        made.send(body=b"x" * 150)
        size = made.stored().store_size
        key = "null@T@P@SEND_SUCCESS"
        assert total(made.stats, "SEND_SIZE", key) == size
        assert total(made.stats, "SEND_TIMES", key) == 3 * -(-size // 100)

        refusal = PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
        made.store.put_hooks.append(lambda _: refusal)
        made.send(body=b"x" * 150)
        key = "null@T@P@SEND_FAILURE"
        assert total(made.stats, "SEND_SIZE", key) == 150
        assert total(made.stats, "SEND_TIMES", key) == 2
        assert made.stats.total("TOPIC_PUT_NUMS", "T") == 1


def test_pulls_and_returns() -> None:
    stats = BrokerStats("c", ManualClock())
    hook = CommercialConsumeHook(stats)

    def context(kind: StatsType | None) -> ConsumeMessageContext:
        return ConsumeMessageContext(
            consumer_group="G",
            topic="T",
            ext_fields={"Owner": "o"},
            message_count=3,
            message_bytes=20_000,
            stats_type=kind,
        )

    for kind in (None, StatsType.RCV_SUCCESS, StatsType.RCV_EPOLLS, StatsType.RCV_EPOLLS):
        hook.before(context(kind))
    for kind in (StatsType.SEND_BACK, StatsType.SEND_BACK_TO_DLQ, StatsType.RCV_SUCCESS):
        hook.after(context(kind))
    assert total(stats, "RCV_TIMES", "o@T@G@RCV_SUCCESS") == 5
    assert total(stats, "RCV_SIZE", "o@T@G@RCV_SUCCESS") == 20_000
    assert total(stats, "RCV_EPOLLS", "o@T@G@RCV_EPOLLS") == 2
    assert total(stats, "SNDBCK_TIMES", "o@T@G@SEND_BACK") == 1
    assert total(stats, "SNDBCK_TIMES", "o@T@G@SEND_BACK_TO_DLQ") == 1
