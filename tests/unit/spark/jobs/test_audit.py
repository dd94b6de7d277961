"""Every fault of a store is found by its kind, and a sound store has none."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from roquet.errors import SparkOptionError
from roquet.format.consume_queue import UNIT_BYTES
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.spark.jobs import audit_findings
from roquet.spark.jobs.audit import audit
from roquet.spark.jobs.audit_findings import Findings
from roquet.spark.jobs.audit_replica import first_and_last_difference
from roquet.spark.jobs.audit_scan import ScanWorker
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.tasks import run_tasks
from roquet.store.inspect.verify import verify
from roquet.storefiles.faults import KINDS
from roquet.storefiles.view import StoreView
from tests.unit.spark.jobs.audit_faults import (
    FAULTS,
    HURT,
    RECORDS,
    SEGMENT_BYTES,
    Planter,
    check,
    filled,
    kinds_of,
    patch,
)
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.log.kit import mixed_messages, stored_messages, write_store
from tests.unit.store.synthetic import FIRST_MS, NOW_MS, STEP_MS, SyntheticStore, flip_bit

GOLDEN = Path(__file__).parents[3] / "golden" / "data"
GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "spark-jobs.md"
GOLDEN_NOW_MS = 1_800_000_000_000  # later than the newest golden record
SEED = 20_261_115
GOLDEN_STORES = sorted(path.name for path in GOLDEN.glob("store-*"))


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    return filled(tmp_path / "store")


def test_the_guide_has_every_kind() -> None:
    text = GUIDE.read_text("utf-8")
    assert [kind for kind, told in KINDS.items() if f"| `{kind}` | {told} |" not in text] == []


def test_there_are_enough_faults() -> None:
    assert len(FAULTS) >= 20
    assert {kind for fault in FAULTS.values() for kind in fault.kinds} | {"replica"} == set(KINDS)


@pytest.mark.parametrize("split_bytes", [1 << 27, 3000, 700])
def test_a_sound_store(store: SyntheticStore, split_bytes: int) -> None:
    report = check(store.root, split_bytes=split_bytes)
    assert report.findings == []
    assert (report.numbers["records"], report.numbers["entries"]) == (RECORDS, RECORDS)
    assert report.numbers["indexEntries"] == 3 * RECORDS
    assert report.numbers["bytes"] == store.log_end


@pytest.mark.parametrize("sample", [0.01, 0.3, 0.5, 0.9])
def test_a_sample_of_a_sound_store(store: SyntheticStore, sample: float) -> None:
    report = check(store.root, split_bytes=700, sample=sample)
    assert report.findings == []
    size_bytes = int(str(report.numbers["bytes"]))
    assert 0 < size_bytes < store.log_end
    assert size_bytes == pytest.approx(store.log_end * sample, abs=1500)


def test_all_ranges_of_a_sample_are_read_at_a_time(
    store: SyntheticStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[int] = []

    def noted(
        session: SparkSession, tasks: Sequence[object], work: Callable[[object], object]
    ) -> list[object]:
        if isinstance(work, ScanWorker):
            jobs.append(len(tasks))
        return run_tasks(session, tasks, work)

    monkeypatch.setattr("roquet.spark.jobs.audit.run_tasks", noted)
    report = check(store.root, split_bytes=700, sample=0.3)
    assert jobs == [report.numbers["tasks"]]
    assert jobs[0] > 3


def test_a_sample_finds_what_is_in_it(store: SyntheticStore) -> None:
    planter = Planter(store)
    planter.log(90, b"\xff")
    seen = check(store.root, split_bytes=700, sample=0.5), check(store.root, split_bytes=1 << 27)
    assert len(seen[0].findings) <= len(seen[1].findings) == 1
    assert [kinds_of(check(store.root, split_bytes=700, sample=0.99))] == [{"bad-crc"}]
    with pytest.raises(SparkOptionError, match="not a part of the log"):
        check(store.root, sample=0)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("split_bytes", [1 << 27, 3000])
def test_a_planted_fault(store: SyntheticStore, name: str, split_bytes: int) -> None:
    FAULTS[name].plant(Planter(store))
    report = check(store.root, split_bytes=split_bytes)
    assert kinds_of(report) == FAULTS[name].kinds
    assert report.numbers["findings"] == len(report.findings) < 15


INDEX_FAULTS = sorted(name for name in FAULTS if "index" in name and name != "an index file is cut")


@pytest.mark.parametrize("name", INDEX_FAULTS)
def test_the_index_is_judged_as_by_store_verify(store: SyntheticStore, name: str) -> None:
    FAULTS[name].plant(Planter(store))
    with StoreView(Files(), store.root) as view:
        expected = verify(view, ManualClock(NOW_MS)).faults
    found = check(store.root).findings
    assert sorted(detail_of(each.field, each.detail) for each in expected) == sorted(
        detail_of(*each.detail.split(": ", 1)) for each in found
    )


def detail_of(field: str, detail: str) -> str:
    """What is said of an entry; where the log ends is not always known when it is judged."""
    return f"{field}: {re.sub(r'the log ends at [0-9]+', 'no record starts there', detail)}"


def test_a_finding_names_the_place(store: SyntheticStore) -> None:
    planter = Planter(store)
    planter.log(90, b"\xff")
    planter.queue(12, b"\1", store.placed[HURT + 1])
    found = {each.kind: each for each in check(store.root).findings}
    assert f"physical offset {planter.record.physical_offset}" in found["bad-crc"].where
    entry = store.placed[HURT + 1]
    place = f"{entry.topic} queue {entry.queue_id}, entry {entry.queue_offset}"
    assert found["tags-code"].where == f"ConsumeQueue of {place}"


@pytest.mark.parametrize("name", ["store-json-clean", "store-ext-crash"])
def test_single_bits_as_store_verify_judges_them(name: str, tmp_path: Path) -> None:
    random = Random(SEED)
    store = Path(shutil.copytree(GOLDEN / name, tmp_path / "store"))
    used = store_end(store)
    parts = ("commitlog", "consumequeue", "consumequeue_ext", "index", "checkpoint")
    paths = sorted(
        path
        for path in store.rglob("*")
        if path.is_file() and path.relative_to(store).parts[0] in parts
    )
    clock = ManualClock(GOLDEN_NOW_MS)
    wrong = []
    for number in range(40):
        chosen = [path for path in paths if path.relative_to(store).parts[0] == parts[number % 5]]
        path = random.choice(chosen or paths)
        byte = random.randrange(used if path.parent.name == "commitlog" else path.stat().st_size)
        bit = random.randrange(8)
        if byte >= path.stat().st_size:
            continue
        flip_bit(path, byte, bit)
        with StoreView(Files(), store) as view:
            expected = verify(view, clock)
        report = audit(HERE, str(store), split_bytes=8192, clock=clock)
        flip_bit(path, byte, bit)
        if expected.ok == report.has_findings:
            wrong.append(f"{path.relative_to(store)} byte {byte} bit {bit}, seed {SEED}")
    assert wrong == []


def store_end(store: Path) -> int:
    return max(each.physical_offset + each.store_size for each in stored_messages(store))


@pytest.mark.parametrize("name", GOLDEN_STORES)
@pytest.mark.parametrize("split_bytes", [1 << 27, 8192])
def test_java_stores_are_sound(name: str, split_bytes: int) -> None:
    """Closed ones and those that a crash left."""
    clock = ManualClock(GOLDEN_NOW_MS)
    report = audit(HERE, str(GOLDEN / name), split_bytes=split_bytes, clock=clock)
    assert report.findings == []
    assert report.numbers["records"] == report.numbers["entries"]
    assert report.numbers["state"] == ("crashed" if name.endswith("crash") else "closed")


@pytest.mark.parametrize("split_bytes", [1 << 27, 2000])
def test_batch_queues_of_java(split_bytes: int) -> None:
    clock = ManualClock(GOLDEN_NOW_MS)
    store = GOLDEN / "batch" / "crash"
    report = audit(HERE, str(store), split_bytes=split_bytes, clock=clock)
    assert report.findings == []
    assert (report.numbers["records"], report.numbers["entries"]) == (11, 11)


def test_a_store_of_roquet(tmp_path: Path) -> None:
    write_store(tmp_path / "store", mixed_messages(300), step_ms=10)
    clock = ManualClock(GOLDEN_NOW_MS)
    report = audit(HERE, str(tmp_path / "store"), split_bytes=16 << 10, clock=clock)
    assert (report.findings, report.numbers["records"]) == ([], 300)


def test_what_a_crash_leaves_is_no_fault(store: SyntheticStore) -> None:
    """A torn record at the end, and entries that were not written yet."""
    planter = Planter(store)
    last = store.placed[-1]
    planter.queue(0, bytes(UNIT_BYTES), last)
    data = planter.segments()[-1].read_bytes()
    position = last.physical_offset % SEGMENT_BYTES
    torn = data[position : position + last.size_bytes // 2]
    patch(planter.segments()[-1], store.log_end % SEGMENT_BYTES, torn)
    assert kinds_of(check(store.root)) == {"entry-missing", "bad-tail"}
    (store.root / "abort").touch()
    assert check(store.root).findings == []


def test_a_record_that_a_crash_lost_is_no_fault(store: SyntheticStore) -> None:
    Planter(store).lose_last_record()
    (store.root / "abort").touch()
    (store.root / "checkpoint").unlink()  # it says that the record was on disk
    assert check(store.root).findings == []


def test_a_topic_that_was_deleted(store: SyntheticStore) -> None:
    """Its records stay in the log until they expire."""
    shutil.rmtree(store.root / "consumequeue" / "Parts")
    assert kinds_of(check(store.root)) == {"entry-missing"}
    config = store.root / "config" / "topics.json"
    config.write_text(json.dumps({"topicConfigTable": {"Orders": {}}}))
    assert check(store.root).findings == []


def test_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    store = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    for life in range(2):
        store.next_queue_offsets.clear()
        for number in range(9 - life):
            store.put("Orders", 0, f"{life} {number}".encode())
    store.write()
    for split_bytes in (1 << 27, 700):
        assert check(store.root, split_bytes=split_bytes).findings == []


def test_expired_records(tmp_path: Path) -> None:
    """Entries of queues and index may lead in front of the log."""
    store = filled(tmp_path / "store")
    for path in Planter(store).segments()[:2]:
        path.unlink()
    assert check(store.root).findings == []


def test_only_some_topics(store: SyntheticStore) -> None:
    Planter(store).queue(12, b"\1")  # of Orders
    clock = ManualClock(NOW_MS)
    for topic, kinds in (("Parts", set()), ("Orders", {"tags-code"})):
        report = audit(HERE, str(store.root), wanted=Wanted(topics=[topic]), clock=clock)
        assert kinds_of(report) == kinds


def test_only_some_time(store: SyntheticStore) -> None:
    Planter(store).log(90, b"\xff")
    at_ms = FIRST_MS + (HURT + 1) * STEP_MS
    clock = ManualClock(NOW_MS)
    for wanted, kinds in (
        (Wanted(to_ms=at_ms), set()),
        (Wanted(from_ms=at_ms + 1), set()),
        (Wanted(from_ms=at_ms, to_ms=at_ms + 1), {"bad-crc"}),
    ):
        report = audit(HERE, str(store.root), wanted=wanted, clock=clock)
        assert kinds_of(report) == kinds
        assert report.numbers["records"] in range(RECORDS)


def test_replicas(tmp_path: Path) -> None:
    clock = ManualClock(GOLDEN_NOW_MS)
    slave = Path(shutil.copytree(GOLDEN / "store-ha-slave", tmp_path / "slave"))
    master = GOLDEN / "store-ha-master"

    def compare() -> list[tuple[str, str]]:
        report = audit(HERE, str(master), replica=str(slave), split_bytes=10_000, clock=clock)
        assert report.table("Replica").rows[0][0] == 0
        return [(each.kind, each.where) for each in report.findings]

    assert compare() == []
    patch(slave / "commitlog" / f"{0:020d}", 12_345, b"\xee")
    assert compare() == [("replica", "physical offset 12345")]


def test_a_replica_that_is_shorter(store: SyntheticStore, tmp_path: Path) -> None:
    replica = filled(tmp_path / "replica", RECORDS - 2)
    report = check(store.root, replica=replica.root)
    assert [each.kind for each in report.findings] == ["replica"]
    assert report.numbers["replicaBehindBytes"] == store.log_end - replica.log_end


def test_differences() -> None:
    assert first_and_last_difference(b"abc", b"abc") is None
    assert first_and_last_difference(b"abcd", b"axxd") == (1, 2)
    assert first_and_last_difference(b"abcd", b"ab") == (2, 3)
    assert first_and_last_difference(b"abcd", b"xb") == (0, 3)


def test_a_dry_run_reads_nothing(store: SyntheticStore) -> None:
    Planter(store).log(90, b"\xff")
    report = audit(HERE, str(store.root), is_dry_run=True)
    assert report.findings == []
    assert report.numbers["segments"] == 6


def test_findings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_findings, "LISTED_MAX", 3)
    findings = Findings()
    for number in range(10):
        findings.tell("gap", str(number), "")
    assert (len(findings.listed), findings.counts["gap"]) == (3, 10)
