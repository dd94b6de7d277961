"""docs/guides/admin.md names every area."""

from __future__ import annotations

import re
from pathlib import Path

from roquet.admin import Admin

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "admin.md").read_text("utf-8")


def test_every_area_is_named() -> None:
    areas = {name for name in vars(Admin("127.0.0.1:9876")) if not name.startswith("_")}
    assert areas == set(re.findall(r"^\| `admin\.(\w+)` \|", GUIDE, re.MULTILINE))
