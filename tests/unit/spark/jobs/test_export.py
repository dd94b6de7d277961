"""Messages leave as they are asked for, and nothing that a rule hides leaves at all."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from roquet.errors import SparkOptionError
from roquet.spark.jobs.export import export
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.mask_rules import Masker, Rule, read_rules
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.log.kit import stored_messages, write_store
from tests.unit.store.kit import message

BODY = {"order": 7, "customer": {"email": "ada@example.org", "phones": ["0123456", None]}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = [
        message(json.dumps(BODY).encode(), topic="Orders", KEYS="7 ada", phone="0123456"),
        message(b"\xff\xfe", topic="Blobs"),
        message(b"no json", topic="Orders"),
        message(b'a "quoted", line\nand more', topic="Notes"),
    ]
    write_store(tmp_path / "store", made)
    return tmp_path / "store"


def lines(out: Path) -> list[dict[str, object]]:
    text = "".join(path.read_text() for path in sorted(out.glob("part-*.json")))
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = export(HERE, str(store), str(out))
    found = lines(out)
    assert report.numbers["messages"] == len(found) == 4
    for row, stored in zip(found, stored_messages(store), strict=True):
        assert (row["topic"], row["queueOffset"]) == (stored.topic, stored.queue_offset)
        assert row["properties"] == stored.properties
    assert json.loads(str(found[0]["body"])) == BODY
    assert found[1]["bodyBase64"] == "//4="
    assert str(found[0]["storeTimestamp"]).endswith("Z")
    with pytest.raises(SparkOptionError, match="holds an export"):
        export(HERE, str(store), str(out))


def test_csv_and_parquet(store: Path, tmp_path: Path) -> None:
    export(HERE, str(store), str(tmp_path / "csv"), file_format="csv")
    (path,) = (tmp_path / "csv").glob("part-*.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[3]["body"] == 'a "quoted", line\nand more'
    assert json.loads(rows[0]["properties"])["phone"] == "0123456"
    wanted = Wanted(topics=["Blobs"])
    export(HERE, str(store), str(tmp_path / "pq"), file_format="parquet", wanted=wanted)
    (path,) = (tmp_path / "pq").glob("part-*.parquet")
    assert pq.ParquetFile(path).read().column("body").to_pylist() == [b"\xff\xfe"]


def test_what_rules_hide_is_in_no_file(store: Path, tmp_path: Path) -> None:
    rules = [
        Rule(field="body.customer.email", action="hash", topics="Ord.*"),
        Rule(field="body.customer.phones", action="mask", topics="Orders"),
        Rule(field="properties.phone", action="mask", keep=2),
        Rule(field="keys"),
    ]
    out = tmp_path / "out"
    with pytest.raises(SparkOptionError, match="salt"):
        export(HERE, str(store), str(out), rules=rules)
    columns = ["body", "properties", "keys", "tags"]
    report = export(HERE, str(store), str(out), rules=rules, salt=b"s", columns=columns)
    text = "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert "ada@example.org" not in text
    assert "0123456" not in text
    assert '"*****56"' in text
    (finding,) = report.findings
    assert (finding.kind, report.numbers["unreadableBodies"]) == ("unreadable", 1)
    assert "no json" not in text
    assert "7 ada" not in text


def test_a_finding_does_not_tell_the_password_of_an_address(store: Path) -> None:
    rules = [Rule(field="body.customer.email", topics="Orders")]
    report = export(HERE, str(store), "memory://key:secret@bucket/out", rules=rules)
    assert [each.where for each in report.findings] == ["memory://bucket/out"]


def test_hashes_join_and_paths_go_through_lists() -> None:
    rules = [Rule(field="body.users.name", action="hash"), Rule(field="body.users.age")]
    body = b'{"users":[{"name":"ada","age":36},{"name":"ada"},{"name":null}],"age":1}'
    first, second = Masker(rules, b"a"), Masker(rules, b"b")
    row = first.apply({"topic": "T", "body": body})
    users = json.loads(row["body"])["users"]  # type: ignore[arg-type]
    assert users[0]["name"] == users[1]["name"] != "ada"
    assert (users[0]["age"], users[2]["name"], first.hidden) == (None, None, 3)
    assert second.apply({"topic": "T", "body": body}) != row
    assert first.apply({"topic": "T", "body": None}) == {"topic": "T", "body": None}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[rule]]\nfield='colour'", "not a field"),
        ("[[rule]]\nfield='body.'", "not a field"),
        ("[[rule]]\nfield='keys'\naction='burn'", "burn"),
        ("[[rule]]\nfield='keys'\ntopic='a'", "topic"),
        ("[[rule]]\nfield='keys'\ntopics='('", "regular expression"),
        ("rule = 5", "rules"),
        ("nonsense", "rules"),
    ],
)
def test_rules_that_cannot_be_followed(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(SparkOptionError) as caught:
        read_rules(path)
    assert said in str(caught.value)


def test_good_rules_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nfield='keys'\naction='mask'\nkeep=3\ntopics='A|B'\n")
    assert read_rules(path) == [Rule(field="keys", action="mask", keep=3, topics="A|B")]
    with pytest.raises(SparkOptionError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")
