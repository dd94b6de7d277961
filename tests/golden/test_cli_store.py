"""``roquet store`` on stores that Apache RocketMQ 5.4.0 wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import roquet
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.inspect.report import Report
from roquet.store.inspect.verify import verify
from roquet.storefiles.view import StoreView
from tests.campaign import sampled
from tests.golden.manifest_kit import read_manifest
from tests.golden.records import log_records
from tests.interop.logwalk import walk_commit_log
from tests.unit.store.protection import SHOWS_AS, Shows, record_fields, shows
from tests.unit.store.synthetic import flip_bit

NOW_MS = 1_800_000_000_000  # later than the newest golden record
WITH_EXTENSIONS = ("store-ext-clean", "store-ext-crash")
# plain, compressed, delayed, half of a transaction, committed, retried, the last one
CHOSEN = (0, 58, 72, 109, 125, 134, 142)
PARTS = 3  # of all bits that are tried; each takes a whole check of the store


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roquet.cli.store.SystemClock", lambda: ManualClock(NOW_MS))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(roquet, ["store", *map(str, arguments)], catch_exceptions=False)


def check(root: Path) -> Report:
    with StoreView(Files(), root) as view:
        return verify(view, ManualClock(NOW_MS))


def test_java_stores_are_sound(golden_data: Path, golden_store_name: str) -> None:
    store = golden_data / golden_store_name
    result = run("verify", store, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["faults"], found["notes"]) == (0, [], [])
    count = sum(1 for _ in walk_commit_log(store))
    assert found["counts"]["records"] == found["counts"]["queueEntries"] == count > 100


def test_read_only_commands_change_nothing(
    golden_data: Path, golden_store: Callable[[str], Path]
) -> None:
    digests = read_manifest(golden_data)
    store = golden_store("store-binary-crash")
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in store.rglob("*") if p.is_file()}
    assert len(before) == sum(name.startswith("store-binary-crash/") for name in digests)
    for command in ("info", "dump", "verify"):
        assert run(command, store).exit_code == 0
    after = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in store.rglob("*") if p.is_file()}
    assert after == before


def test_info(golden_data: Path, golden_store_name: str) -> None:
    store = golden_data / golden_store_name
    found = json.loads(run("info", store, "--json").stdout)
    records = list(walk_commit_log(store))
    assert found["state"] == ("crashed" if golden_store_name.endswith("crash") else "clean")
    assert found["maxPhysicalOffset"] == records[-1].end_offset
    assert found["segments"][0]["lastPhysicalOffset"] == records[-1].physical_offset
    assert (found["problems"], found["warnings"]) == ([], [])
    for queue in found["queues"]:
        own = [r for r in records if (r.topic, r.queue_id) == (queue["topic"], queue["queueId"])]
        assert (queue["minQueueOffset"], queue["maxQueueOffset"]) == (0, len(own))
        assert queue["minPhysicalOffset"] == own[0].physical_offset
        assert queue["maxPhysicalOffset"] == own[-1].physical_offset
    assert {(file["slots"], file["entryCapacity"]) for file in found["indexFiles"]} == {(100, 200)}
    assert bool(found["consumeQueueExtCount"]) == (golden_store_name in WITH_EXTENSIONS)


def test_dump_reads_what_another_reader_reads(golden_data: Path, golden_store_name: str) -> None:
    store = golden_data / golden_store_name
    lines = run("dump", store, "--json").stdout.splitlines()
    names = ("physicalOffset", "storeSize", "topic", "queueId", "queueOffset", "flag", "sysFlag")
    assert [[json.loads(line)[name] for name in names] for line in lines] == [
        [
            record.physical_offset,
            record.size,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.flag,
            record.sys_flag,
        ]
        for record in walk_commit_log(store)
    ]
    assert [json.loads(line)["properties"] for line in lines] == [
        {name: value for name, value in record.properties.items() if value}
        for record in walk_commit_log(store)
    ]


def test_dump_finds_by_queue_and_key_what_a_walk_finds(golden_data: Path) -> None:
    store = golden_data / "store-json-clean"
    everything = [json.loads(line) for line in run("dump", store, "--json").stdout.splitlines()]
    for message in everything[::7]:
        place = ["--topic", message["topic"], "--queue", message["queueId"]]
        offset = ["--from-offset", message["queueOffset"], "--to-offset", message["queueOffset"]]
        assert run("dump", store, "--json", *place, *offset).stdout == to_line(message)
    for key in ("key-3", "big", "tx2", everything[5]["msgId"]):
        with_key = [m for m in everything if key in [*m["keys"], m["msgId"]]]
        assert with_key
        by_walk = run("dump", store, "--json", "--key", key).stdout
        topics = [word for m in with_key for word in ("--topic", m["topic"])]
        by_index = run("dump", store, "--json", "--key", key, *topics).stdout
        assert by_walk == by_index == "".join(map(to_line, with_key))


def to_line(message: dict[str, object]) -> str:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n"


# -- single bits --------------------------------------------------------------------------------


@pytest.mark.parametrize("part", sampled(range(PARTS)))
@pytest.mark.parametrize("place", CHOSEN)
def test_every_byte_of_a_java_record(
    golden_store: Callable[[str], Path], place: int, part: int
) -> None:
    store = golden_store("store-json-clean")
    records = list(log_records(store))
    record = records[place]
    path = store / "commitlog" / f"{0:020d}"
    raw = path.read_bytes()[record.physical_offset : record.end_offset]
    times = [r.store_timestamp_ms for r in records]
    between_ms = range(times[max(place - 1, 0)], times[min(place + 1, len(times) - 1)] + 1)
    wrong: list[str] = []
    for byte, name in list(enumerate(record_fields(raw, record.topic)))[part::PARTS]:
        bit = (byte * 5 + place) % 8
        flip_bit(path, record.physical_offset + byte, bit)
        report = check(store)
        flip_bit(path, record.physical_offset + byte, bit)
        found = {f.field for f in report.faults if f.physical_offset == record.physical_offset}
        expected = shows(name, byte, bit, raw=raw, record=record, between_ms=between_ms)
        if expected is Shows.NEVER and not report.ok:
            wrong.append(f"{name} byte {byte} bit {bit} shows: {report.faults}")
        if expected is Shows.ALWAYS and not found & SHOWS_AS[name]:
            wrong.append(f"{name} byte {byte} bit {bit}: {report.faults}")
    assert wrong == []


@pytest.mark.parametrize("part", sampled(range(PARTS)))
def test_every_byte_of_java_queues_and_index(
    golden_store: Callable[[str], Path], part: int
) -> None:
    """Every entry in use; free entries of an index file and its entry 0 mean nothing."""
    store = golden_store("store-json-clean")
    queue = store / "consumequeue" / "GoldenTx" / "2" / f"{0:020d}"
    index = max((store / "index").iterdir())
    used = int.from_bytes(index.read_bytes()[36:40], "big")
    entries_at = 40 + 4 * 100
    chosen = [(queue, byte) for byte in range(40)]
    chosen += [(index, byte) for byte in range(40)]
    chosen += [(index, byte) for byte in range(40, entries_at, 7)]
    chosen += [(index, byte) for byte in range(entries_at + 20, entries_at + 20 * used, 11)]
    wrong: list[str] = []
    for path, byte in chosen[part::PARTS]:
        flip_bit(path, byte, byte % 8)
        report = check(store)
        flip_bit(path, byte, byte % 8)
        if not any(f.file == path.relative_to(store).as_posix() for f in report.faults):
            wrong.append(f"{path.name} byte {byte}: {report.faults}")
    assert wrong == []


@pytest.mark.parametrize("part", sampled(range(PARTS)))
def test_every_bit_of_java_queue_extensions(golden_store: Callable[[str], Path], part: int) -> None:
    """All but the bit map, which only the consumers' expressions could confirm."""
    store = golden_store("store-ext-clean")
    path = store / "consumequeue_ext" / "GoldenSql" / "1" / f"{0:020d}"
    size = int.from_bytes(path.read_bytes()[:2], "big")
    assert size > 20
    wrong: list[str] = []
    for byte in range(size):
        for bit in range((byte + part) % PARTS, 8, PARTS):
            flip_bit(path, byte, bit)
            report = check(store)
            flip_bit(path, byte, bit)
            if report.ok != (byte >= 20):
                wrong.append(f"byte {byte} bit {bit}: {report.faults}")
            assert all(f.topic == "GoldenSql" and f.queue_id == 1 for f in report.faults)
    assert wrong == []


def test_a_crashed_java_store_with_a_torn_tail(golden_store: Callable[[str], Path]) -> None:
    store = golden_store("store-json-crash")
    last = list(log_records(store))[-1]
    path = store / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(last.end_offset)
        file.write(path.read_bytes()[:150])
    report = check(store)
    assert report.faults == []
    assert [(note.kind, note.physical_offset) for note in report.notes] == [
        ("tail", last.end_offset)
    ]
    (store / "abort").unlink()
    assert [fault.physical_offset for fault in check(store).faults] == [last.end_offset]


# -- rebuild ------------------------------------------------------------------------------------


def test_rebuild_makes_the_queues_that_java_made(
    golden_data: Path, golden_store_name: str, tmp_path: Path
) -> None:
    store = golden_data / golden_store_name
    assert run("rebuild", store, "--into", tmp_path / "new").exit_code == 0
    built = {
        p.relative_to(tmp_path / "new").as_posix(): p.read_bytes()
        for p in (tmp_path / "new" / "consumequeue").rglob("*")
        if p.is_file()
    }
    java = {
        p.relative_to(store).as_posix(): p.read_bytes()
        for p in (store / "consumequeue").rglob("*")
        if p.is_file()
    }
    if golden_store_name in WITH_EXTENSIONS:
        assert built.keys() == java.keys()
    else:
        assert built == java


def test_rebuild_in_place(golden_store: Callable[[str], Path], golden_store_name: str) -> None:
    store = golden_store(golden_store_name)
    shutil.rmtree(store / "consumequeue" / "GoldenTopic")
    min((store / "index").iterdir()).unlink()
    if golden_store_name.endswith("clean"):
        assert run("verify", store).exit_code == 2
    assert run("rebuild", store, "--yes").exit_code == 0
    assert check(store).faults == []
    assert sum(1 for _ in (store / "index").iterdir()) == 2
