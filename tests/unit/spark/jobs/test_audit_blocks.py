"""An audit gives the same result whether records are read in blocks or one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.spark.jobs import audit_scan
from roquet.spark.report import Report
from roquet.storefiles.plain_blocks import make_block_reader
from roquet.storefiles.records import FoundRecord
from tests.unit.spark.jobs.audit_faults import FAULTS, Planter, check, filled
from tests.unit.store.synthetic import SyntheticStore


def outcome(report: Report) -> object:
    findings = sorted((each.kind, each.where, each.detail) for each in report.findings)
    return findings, report.numbers


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    return filled(tmp_path / "store")


def both_ways(root: Path, monkeypatch: pytest.MonkeyPatch, split_bytes: int) -> list[object]:
    found = [outcome(check(root, split_bytes=split_bytes))]
    with monkeypatch.context() as patch:
        patch.setattr(audit_scan, "make_block_reader", lambda _number_of: None)
        found.append(outcome(check(root, split_bytes=split_bytes)))
    return found


@pytest.mark.parametrize("split_bytes", [1_000, 1 << 20])
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_planted_fault(
    store: SyntheticStore, name: str, split_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[name].plant(Planter(store))
    in_blocks, one_by_one = both_ways(store.root, monkeypatch, split_bytes)
    assert in_blocks == one_by_one


def test_a_sound_store_is_read_in_blocks(
    store: SyntheticStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if make_block_reader(lambda *_: 0) is None:
        pytest.skip("without compiled code there are no blocks")
    singles: list[object] = []
    on_record = audit_scan._Walk._on_record

    def spy(walk: audit_scan._Walk, found: FoundRecord) -> None:
        singles.append(found)
        on_record(walk, found)

    monkeypatch.setattr(audit_scan._Walk, "_on_record", spy)
    report = check(store.root)
    assert (report.numbers["records"], report.findings) == (len(store.placed), [])
    assert singles == []
