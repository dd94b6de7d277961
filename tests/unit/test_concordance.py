"""docs/concordance.md maps an upstream class to our file; every target must exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concordance.md"
ROW = re.compile(r"\| `(?P<names>[^|]+)` \| `(?P<target>[^`|]+)` \|")


def rows() -> list[tuple[list[str], str]]:
    table = []
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| `"):
            match = ROW.match(line)
            assert match is not None, f"not a row of the table: {line}"
            table.append((match["names"].split("`, `"), match["target"]))
    return table


def test_every_target_exists() -> None:
    targets = {target for _, target in rows()}
    assert targets
    assert sorted(t for t in targets if not (ROOT / "src" / "roquet" / t).is_file()) == []


def test_every_upstream_class_is_named_once() -> None:
    names = [name for group, _ in rows() for name in group]
    assert sorted(names) == sorted(set(names))


def test_every_module_of_the_store_is_reachable() -> None:
    """Every store module matches an upstream name or is listed as ours."""
    text = PAGE.read_text("utf-8")
    store = ROOT / "src" / "roquet" / "store"
    modules = [f"store/{p.name}" for p in sorted(store.glob("*.py")) if p.name != "__init__.py"]
    assert [module for module in modules if f"`{module}`" not in text] == []
