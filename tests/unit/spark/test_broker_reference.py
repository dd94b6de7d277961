"""docs/reference/spark-options.md names every option and column of the source and the sink."""

import re
from pathlib import Path

import pytest

from roquet.spark.broker.connect import CONNECT_ALIASES, CONNECT_OPTIONS
from roquet.spark.broker.read_options import READ_ALIASES, READ_OPTIONS
from roquet.spark.broker.write_options import SINK_COLUMNS, WRITE_ALIASES, WRITE_OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark-options.md"


def named(heading: str) -> set[str]:
    """What the first cells of the tables under a heading name."""
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        ("`rocketmq`: reaching a cluster", {*CONNECT_OPTIONS, *CONNECT_ALIASES}),
        (
            "`rocketmq`: reading",
            {*READ_OPTIONS, *READ_ALIASES} - {*CONNECT_OPTIONS, *CONNECT_ALIASES},
        ),
        (
            "`rocketmq`: writing",
            {*WRITE_OPTIONS, *WRITE_ALIASES, *SINK_COLUMNS} - {*CONNECT_OPTIONS, *CONNECT_ALIASES},
        ),
    ],
)
def test_the_page_has_every_name(heading: str, known: set[str]) -> None:
    assert named(heading) == known
