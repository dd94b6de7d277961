"""A lake of one broker needs no --broker-name, and --keep takes a bare 0."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from roquet.cli.main import roquet
from roquet.spark import session
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.lake_broker import only_broker
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import GOLDEN


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(**_: object) -> Iterator[object]:
        yield HERE

    monkeypatch.setattr(session, "open_session", opened)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    archive(HERE, str(GOLDEN), str(tmp_path / "lake"), broker_name="broker-a")
    return tmp_path / "lake"


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(roquet, ["spark", *words])
    return result.exit_code, result.output


@pytest.mark.parametrize("job", [("tier", "--keep", "0"), ("verify",)])
def test_the_only_broker_of_a_lake_is_meant(lake: Path, job: tuple[str, ...]) -> None:
    name, *flags = job
    code, printed = call(name, str(GOLDEN), "--lake", str(lake), *flags, "--json")
    assert code == 0, printed
    assert json.loads(printed)["numbers"]["messages"] > 0


def test_of_several_brokers_one_has_to_be_named(lake: Path) -> None:
    archive(HERE, str(GOLDEN), str(lake), broker_name="broker-b")
    assert only_broker(str(lake)) == "log"
    code, printed = call("verify", str(GOLDEN), "--lake", str(lake))
    assert code == 2
    assert "holds nothing of 'log'" in printed
    assert "messages of: broker-a, broker-b. Name one of them by --broker-name." in printed


def test_a_lake_of_nobody(tmp_path: Path) -> None:
    assert only_broker(str(tmp_path / "none")) == "log"
    code, printed = call("tier", str(GOLDEN), "--lake", str(tmp_path / "none"))
    assert code == 2
    assert "It holds no archive of a log." in printed


@pytest.mark.parametrize("keep", ["1", "-1s", "0x", ""])
def test_other_numbers_need_a_unit(tmp_path: Path, keep: str) -> None:
    code, printed = call("tier", str(GOLDEN), "--lake", str(tmp_path), "--keep", keep)
    assert code == 2
    assert "is not a duration" in printed
