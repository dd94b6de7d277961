"""``roquet offset``, and ``roquet group reset``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.cli.client_kit import call, done, of_json
from tests.unit.cli.output_kit import error_of

GROUP = "billing"
TOPIC = "Orders"


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        found.create_topic(TOPIC, queues=2)
        done(found, "group", "create", GROUP)
        done(found, "send", TOPIC, input="".join(f"{number}\n" for number in range(20)))
        yield found


@pytest.fixture(autouse=True)
def begin(running: BackgroundBroker) -> None:
    reset(running, "earliest")


def reset(running: BackgroundBroker, to: str, *flags: str) -> Any:  # noqa: ANN401 - JSON
    return of_json(running, "offset", "reset", GROUP, TOPIC, "--to", to, "--yes", *flags)


def committed(running: BackgroundBroker) -> list[int]:
    found = of_json(running, "offset", "show", GROUP, TOPIC)
    return [each["committedOffset"] for each in found["queues"]]


def ends(running: BackgroundBroker) -> list[int]:
    found = of_json(running, "offset", "show", GROUP, TOPIC)
    return [each["maxOffset"] for each in found["queues"]]


def test_where_groups_are(running: BackgroundBroker) -> None:
    [row] = [each for each in of_json(running, "offset", "ls") if each["group"] == GROUP]
    assert (row["topic"], row["queues"], row["lag"]) == (TOPIC, 2, 20)
    assert of_json(running, "offset", "ls", GROUP) == [row]
    assert GROUP in done(running, "offset", "ls")
    found = of_json(running, "offset", "show", GROUP, TOPIC)
    assert [each["lag"] for each in found["queues"]] == ends(running)
    assert f"{GROUP} in {TOPIC}" in done(running, "offset", "show", GROUP, TOPIC)


def test_to_each_kind_of_position(running: BackgroundBroker) -> None:
    last = ends(running)
    reset(running, "latest")
    assert committed(running) == last
    reset(running, "earliest")
    assert committed(running) == [0, 0]
    reset(running, "3")
    assert committed(running) == [3, 3]
    reset(running, "-2")
    assert committed(running) == [end - 2 for end in last]
    reset(running, "1h")
    assert committed(running) == [0, 0]
    reset(running, "100000")
    assert committed(running) == last


def test_one_queue(running: BackgroundBroker) -> None:
    found = reset(running, "latest", "--queue", "1")
    assert committed(running) == [0, ends(running)[1]]
    [move] = found["queues"]
    assert (move["queueId"], move["committedOffset"]) == (1, 0)
    assert move["again"] == -move["targetOffset"]
    done(running, "offset", "set", GROUP, TOPIC, "0", "4", "--yes")
    assert committed(running)[0] == 4


def test_a_dry_run_moves_nothing(running: BackgroundBroker) -> None:
    found = of_json(running, "offset", "reset", GROUP, TOPIC, "--to", "5", "--dry-run")
    assert found["dryRun"] is True
    assert [each["targetOffset"] for each in found["queues"]] == [5, 5]
    assert committed(running) == [0, 0]
    text = done(running, "group", "reset", GROUP, TOPIC, "--to", "5", "--dry-run")
    assert f"{GROUP} would move in 2 queues of {TOPIC}" in text


def test_one_confirmation_lists_what_is_skipped(running: BackgroundBroker) -> None:
    result = call(running, "group", "reset", GROUP, TOPIC, "--to", "5", input="n\n")
    assert result.exit_code == 1
    assert f"{GROUP} then consumes 10 messages never:" in result.stderr
    assert f"{running.name} queue 0: 0 → 5" in result.stderr
    assert f"Move {GROUP} in 2 queues of {TOPIC}?" in result.stderr
    assert committed(running) == [0, 0]
    result = call(running, "group", "reset", GROUP, TOPIC, "--to", "5", input="y\n")
    assert result.exit_code == 0
    assert committed(running) == [5, 5]
    result = call(running, "group", "reset", GROUP, TOPIC, "--to", "3", input="n\n")
    assert "then consumes 4 messages again:" in result.stderr


def test_no_confirmation_if_nothing_would_change(running: BackgroundBroker) -> None:
    out = done(running, "offset", "reset", GROUP, TOPIC, "--to", "earliest")
    assert f"{GROUP} moved in 0 queues of {TOPIC}" in out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("reset", GROUP, TOPIC, "--to", "soon"), 2),
        (("reset", GROUP, TOPIC), 2),
        (("reset", "nobody", TOPIC, "--to", "latest"), 1),
        (("reset", GROUP, "Nothing", "--to", "latest"), 3),
        (("reset", GROUP, TOPIC, "--to", "latest", "--queue", "9"), 1),
        (("set", GROUP, TOPIC, "9", "1"), 1),
        (("set", GROUP, TOPIC, "x", "1"), 2),
        (("show", GROUP, "Nothing"), 3),
        (("show", "nobody", TOPIC), 1),
        (("ls", "nobody"), 1),
    ],
)
def test_impossible_resets_are_refused(
    running: BackgroundBroker, arguments: tuple[str, ...], code: int
) -> None:
    result = call(running, "offset", *arguments)
    assert result.exit_code == code, result.output
    assert "nobody" not in done(running, "group", "ls")


def test_misspelled_names(running: BackgroundBroker) -> None:
    result = call(running, "offset", "reset", "biling", TOPIC, "--to", "latest", "--json")
    assert error_of(result)["hint"] == f"Did you mean {GROUP}?"
    result = call(running, "offset", "show", GROUP, "Order", "--json")
    assert error_of(result)["hint"] == f"Did you mean {TOPIC}?"
