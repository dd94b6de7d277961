"""Reports of every pipeline, as a made-up shop would get them."""

from __future__ import annotations

import random

from roquet.spark.report import OTHERS, Cell, Report

TOPICS = ("Orders", "Payments", "Clicks", "Shipments", "Refunds", "Invoices", "Returns")
SEED = 20261115


def stats_report() -> Report:
    """Two days of a shop."""
    rng = random.Random(SEED)
    report = Report(job="stats", source="/data/broker-a/store", seconds=7.4)
    report.finished_at = "2026-11-16T18:04:11.250Z"
    report.numbers |= {
        "messages": 7_777_990,
        "bytes": 2_147_483_648,
        "firstStoreTimestamp": "2026-11-15T00:00:00.004Z",
        "lastStoreTimestamp": "2026-11-16T17:59:59.981Z",
    }
    groups: list[list[Cell]] = []
    hours: list[list[Cell]] = []
    for rank, topic in enumerate((*TOPICS, "Audit_of_everything_that_the_warehouse_does_at_night")):
        messages = 3_000_000 // (rank + 1)
        size = messages * (180 + 40 * rank)
        cells = [round(size / messages, 1), round(messages / 151_200, 2)]
        groups.append([topic, messages, size, *cells, rank, 4 + 3**rank, 9 + 5**rank])
        if rank < len(TOPICS):
            for at in range(42):
                part = round(messages / 42 * (1.2 + rng.random() - abs(at % 24 - 13) / 12))
                day, hour = divmod(at, 24)
                hours.append([f"2026-11-{15 + day} {hour:02}:00", topic, part, part * 200])
    hours += [[f"2026-11-15 {hour:02}:00", OTHERS, 9_000, 2_100_000] for hour in range(24)]
    columns = ["topic", "messages", "bytes", "mean bytes", "messages/s"]
    columns += ["p50 ms to store", "p99 ms to store", "max ms to store"]
    report.add_table("By topic", columns, groups)
    report.add_table(
        "Queues",
        ["topic", "queues", "least messages", "most messages", "most to mean"],
        [[topic, 8, 10_000, 31_000, round(1 + at * 0.37, 2)] for at, topic in enumerate(TOPICS)],
    )
    report.add_table("Hours", ["hour", "topic", "messages", "bytes"], hours)
    report.add_table(
        "Sizes",
        ["up to bytes", "messages", "bytes"],
        [[1 << power, 2_000_000 >> abs(power - 8), 1 << 20] for power in range(7, 15)],
    )
    report.add_table(
        "Hot keys", ["topic", "key", "messages"], [["Orders", f"o{n}", 900 - n] for n in range(10)]
    )
    return report


def lag_report() -> Report:
    """Three groups, of which one is late."""
    report = Report(job="lag", source="10.0.0.1:9876;10.0.0.2:9876", seconds=9.2)
    report.finished_at = "2026-11-16T18:05:02.003Z"
    report.numbers |= {
        "queues": 12,
        "measuredFrom": "2026-11-16T18:05:01.332Z",
        "messages": 18_214,
    }
    groups: list[list[Cell]] = [
        ["billing", "Orders", 16_000, 912.5],
        ["shipping", "Orders", 2214, 1.19],
        ["fraud", "Payments", 0, None],
    ]
    report.add_table(
        "Groups",
        ["group", "topic", "messages behind", "seconds behind"],
        groups,
    )
    columns = ["group", "topic", "broker", "queue", "offset", "head"]
    rows: list[list[Cell]] = [
        ["billing", "Orders", "broker-a", at, 1000, 1000 + 500 * at, 500 * at, 100.0 * at]
        for at in range(8)
    ]
    report.add_table("Queues", [*columns, "messages behind", "seconds behind"], rows)
    report.add_finding("behind", "billing at Orders", "16000 messages, 912.5 s")
    report.add_finding("gone", "shipping at Orders queue 3", "18 messages were deleted unconsumed")
    return report


def capacity_report() -> Report:
    """A disk that will be full."""
    report = Report(job="capacity", source="/data/broker-a/store", seconds=6.1)
    report.finished_at = "2026-11-16T18:06:40.900Z"
    report.numbers |= {
        "logBytes": 180 << 30,
        "storeBytes": 195 << 30,
        "freeBytes": 240 << 30,
        "bytesADay": 88 << 30,
        "isExtrapolated": False,
        "bytesWhenSteady": 616 << 30,
        "daysToFull": 2.73,
        "lastStoreTimestamp": "2026-11-16T17:59:59.981Z",
    }
    report.add_finding("full", "/data/broker-a/store", "the disk is full in 2.73 days")
    report.add_table(
        "Topics",
        ["topic", "messages", "bytes", "bytes a day", "percent"],
        [
            [topic, 9_000_000 // at, (90 << 30) // at, (40 << 30) // at, round(45 / at, 2)]
            for at, topic in enumerate(TOPICS, 1)
        ],
    )
    report.add_table(
        "Days",
        ["day", "messages", "bytes"],
        [[f"2026-11-{day}", 5_000_000 + day * 100_000, (60 + day) << 30] for day in range(10, 17)],
    )
    return report


def trace_report() -> Report:
    """Hops of messages, in which one group fails at times."""
    report = Report(job="trace", source="/data/broker-a/store", seconds=8.8)
    report.numbers |= {"events": 91_022, "unreadable": 0}
    hops = ["messages", "failed", "p50 ms", "p99 ms", "max ms"]
    report.add_table("Send", ["topic", *hops], [["Orders", 30_000, 2, 3, 18, 240]])
    groups: list[list[Cell]] = [["billing", "Orders", 30_000, 0, 5, 900, 61_000]]
    report.add_table("Wait", ["group", "topic", *hops], groups)
    groups = [
        ["billing", "Orders", 30_000, 410, 12, 2_300, 31_000],
        ["shipping", "Orders", 29_900, 7, 3, 40, 900],
    ]
    report.add_table("Consume", ["group", "topic", *hops], groups)
    return report


def audit_report() -> Report:
    """A store with damage."""
    report = Report(job="audit", source="/data/broker-a/store", seconds=21.0)
    report.numbers |= {"segments": 5, "records": 4_500_000, "state": "closed", "findings": 43}
    report.add_table(
        "Findings by kind",
        ["kind", "count", "meaning"],
        [["bad-crc", 3, "a body differs from its CRC"], ["index-missing", 40, "no entry"]],
    )
    report.add_finding("bad-crc", "physical offset 88", "the body has CRC 1, its record says 2")
    return report


def archive_report() -> Report:
    """A lake that grew by three days."""
    report = Report(job="archive", source="/data/broker-a/store", seconds=61.0)
    report.numbers |= {"ranges": 12, "bytesToRead": 2 << 30, "messages": 7_777_990, "files": 21}
    report.add_table(
        "Written",
        ["topic", "day", "messages", "files"],
        [[topic, f"2026-11-{day}", day * 1000, 1] for topic in TOPICS for day in (14, 15, 16)],
    )
    report.outputs.append("s3://lake/messages")
    return report


def dead_letter_report() -> Report:
    """Dead letters of two groups."""
    report = Report(job="dlq list", source="10.0.0.1:9876", seconds=7.0)
    report.numbers |= {"groups": 2, "letters": 30}
    times = ["2026-11-15T07:33:46.087Z", "2026-11-16T07:33:46.087Z"]
    report.add_table(
        "Groups",
        ["group", "original topic", "reason", "letters", "tries", "first", "last"],
        [
            ["billing", "Orders", "retries exhausted", 28, "16", *times],
            ["shipping", None, "unknown", 2, "1 to 3", *times],
        ],
    )
    return report


def tier_report() -> Report:
    """Segments, of which three may go."""
    report = Report(job="tier", source="/data/broker-a/store", is_dry_run=False, seconds=30.0)
    report.numbers |= {"cutOffset": 3 << 30, "segments": 5, "segmentsToDrop": 3}
    words = ["goes", "goes", "goes", "too young", "the newest"]
    report.add_table(
        "Segments",
        ["segment", "bytes", "stored before", "what"],
        [[f"{at << 30:020}", 1 << 30, None, word] for at, word in enumerate(words)],
    )
    return report


REPORTS = {
    "stats": stats_report,
    "lag": lag_report,
    "capacity": capacity_report,
    "trace": trace_report,
    "audit": audit_report,
    "archive": archive_report,
    "dlq": dead_letter_report,
    "tier": tier_report,
}
"""Makes one report of each kind."""
