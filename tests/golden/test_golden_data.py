"""The golden stores and frames are complete and unchanged since Apache RocketMQ made them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.manifest_kit import read_manifest


def test_every_file_has_the_digest_of_the_manifest(golden_data: Path) -> None:
    found = {
        path.relative_to(golden_data).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for pattern in ("store-*/**/*", "batch/**/*", "wire/*", "mqadmin/*")
        for path in golden_data.glob(pattern)
        if path.is_file()
    }
    assert found == read_manifest(golden_data)


def test_fixture_names_every_store(golden_data: Path, golden_store_name: str) -> None:
    assert (golden_data / golden_store_name / "commitlog").is_dir()


def test_no_store_is_missing_from_the_fixture(golden_data: Path) -> None:
    from_disk = {path.name for path in golden_data.glob("store-*")}
    from_manifest = {name.split("/", maxsplit=1)[0] for name in read_manifest(golden_data)}
    assert from_manifest == {*from_disk, "batch", "wire", "mqadmin"}
    assert len(from_disk) == 8


def test_copies_are_private(
    golden_data: Path, golden_store: Callable[[str], Path], golden_store_name: str
) -> None:
    original = (golden_data / golden_store_name / "checkpoint").read_bytes()
    first = golden_store(golden_store_name)
    (first / "checkpoint").write_bytes(b"changed")
    second = golden_store(golden_store_name)
    assert (second / "checkpoint").read_bytes() == original
    assert (golden_data / golden_store_name / "checkpoint").read_bytes() == original


def test_unknown_store_is_refused(golden_store: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match="no golden store named 'store-none'"):
        golden_store("store-none")
