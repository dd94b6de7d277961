"""Python blocks run as they stand, page by page and from top to bottom, as a reader tries them.

Only the address of the name server is replaced, by that of a broker which the test starts. Blocks
that use Spark run in tests/spark/test_pages.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.testing.background import background_broker
from tests.pages import BLOCKS, ROOT, Block

PYTHON = [each for each in BLOCKS if each.language == "python" and not each.is_spark]
TESTS = [block for block in PYTHON if "def test_" in block.code]
PROGRAMS = [block for block in PYTHON if block not in TESTS]
PAGES = sorted({block.page for block in PROGRAMS})
ADMIN_PAGE = "docs/guides/admin.md"

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "src"),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
}
INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


def run(command: Sequence[str], folder: Path, where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"


def test_programs_and_tests_are_found() -> None:
    assert {"README.md", "docs/guides/client.md", ADMIN_PAGE} <= set(PAGES)
    assert TESTS


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    with background_broker({"enablePropertyFilter": True}) as server:
        for block in (each for each in PROGRAMS if each.page == page):
            run(["-c", block.at(server.namesrv)], tmp_path, block.where)
        if page == ADMIN_PAGE:
            server.call(lambda: check_administered(server.running.broker))


def check_administered(broker: Broker) -> None:
    """The program of the guide has created a topic and a group, and has reset the group."""
    assert broker.topics.table["Orders"].write_queue_nums == 4
    assert broker.groups.table["billing"].retry_max_times == 5
    assert [broker.offsets.query("billing", "Orders", queue_id) for queue_id in range(4)] == [0] * 4


def test_the_tests_that_pages_show_pass(tmp_path: Path) -> None:
    names = [write(tmp_path, number, block) for number, block in enumerate(TESTS)]
    (tmp_path / "pytest.ini").write_text(INI)
    plugins = [
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_asyncio.plugin",
        "-p",
        "roquet.testing.pytest_plugin",
    ]
    run(["-m", "pytest", "-q", *plugins, *names], tmp_path, "\n".join(names))


def write(folder: Path, number: int, block: Block) -> str:
    name = f"test_{number}_{Path(block.page).stem}_{block.line}.py"
    (folder / name).write_text(block.code, "utf-8")
    return name


def test_client_examples_exist_with_and_without_asyncio() -> None:
    sides = [b.code.split("\n")[0] for b in PROGRAMS if b.page == "docs/guides/client.md"]
    assert sides
    assert sides == ["# asyncio", "# blocking"] * (len(sides) // 2)
