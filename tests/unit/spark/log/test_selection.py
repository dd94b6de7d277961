from __future__ import annotations

from pathlib import Path

import pytest

from roquet.errors import SparkOptionError, SparkSchemaError
from roquet.spark.log.log_options import ALIASES, OPTIONS
from tests.unit.spark.log.kit import mixed_messages, rows, write_store

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "spark-options.md"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    write_store(path, mixed_messages(120))
    return path


def test_topics_queues_and_keys_are_selected(store: Path) -> None:
    whole = rows(store)
    assert rows(store, topics="T0, T2") == [row for row in whole if row["topic"] in {"T0", "T2"}]
    assert rows(store, subscribe="T1", queueIds="1,3") == [
        row for row in whole if row["topic"] == "T1" and row["queueId"] in {1, 3}
    ]
    assert rows(store, subscribePattern="T[12]") == [row for row in whole if row["topic"] != "T0"]
    assert [row["properties"] for row in rows(store, keys="key-7")] == [whole[7]["properties"]]
    assert len(rows(store, keys=f"key-1,{9:032X}")) == 2
    assert rows(store, topics="None") == []


def test_only_the_columns_that_are_asked_for_are_made(store: Path) -> None:
    assert rows(store, columns="Tags,queueid")[1] == {"tags": "Tag1", "queueId": 1}


def test_the_page_lists_every_option() -> None:
    page = PAGE.read_text("utf-8")
    section = page.split("## `rocketmq-log`")[1].split("\n## ")[0]
    listed = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert listed == {*OPTIONS, *ALIASES} - {"paths"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": "a", "subscribePattern": "b"}, "Set only one of 'topic', 'subscribePattern'"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"queueIds": "a"}, "not a list of numbers"),
        ({"mode": "lenient"}, "not one of its values"),
        ({"startingTimestamp": "yesterday"}, "no time"),
        ({"startingOffsets": "soon"}, "not a position in the log"),
        ({"startingOffsets": '{"T":{"a":{"0":1}}}'}, "not a position in the log"),
        ({"endingOffsets": "earliest"}, "not a position in the log"),
        ({"maxSplitBytes": "1"}, "too small"),
        ({"minPartitions": "0"}, "out of bounds"),
        ({"paths": "a"}, "not a list of paths"),
        ({"checkCrc": "maybe"}, "not one of its values"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(
    store: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(SparkOptionError, match=sentence) as caught:
        rows(store, **options)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_a_column_that_is_not_there_is_refused(store: Path) -> None:
    with pytest.raises(SparkSchemaError, match="Did you mean 'bodyCrc'"):
        rows(store, columns="body_crc")
