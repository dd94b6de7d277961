"""Opens pages in a real Chromium and asks what it made of them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Puts each page into frames as wide as a phone and as a desk, and measures there.
_SCRIPT = Path(__file__).with_name("look_at_pages.js")


def chromium() -> str:
    """The program; skips the test where there is none."""
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("Chromium is not installed: report pages are not opened (apt-get install chromium)")


@dataclass(frozen=True)
class Opened:
    """What came of pages.

    Attributes:
        found: By page and width: what was measured.
        console: What Chromium complained about.
    """

    found: Mapping[str, Mapping[str, Any]]
    console: Sequence[str]


def run(folder: Path, *arguments: str) -> tuple[str, str]:
    """Run Chromium without a window; its output and its log."""
    ended = subprocess.run(
        [
            chromium(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return ended.stdout, ended.stderr


def opened(folder: Path, pages: Mapping[str, str], *, is_dark: bool = False) -> Opened:
    """Open pages as wide as a phone and as a desk."""
    harness = folder / "harness.html"
    # "<" cannot end the script element that holds the pages.
    text = json.dumps(pages).replace("<", "\\u003c")
    harness.write_text(
        '<!DOCTYPE html><meta charset="utf-8"><body>'
        f'<script type="application/json">{text}</script>'
        f"<script>{_SCRIPT.read_text('utf-8')}</script>",
        "utf-8",
    )
    scheme = 0 if is_dark else 1
    out, log = run(
        folder,
        f"--blink-settings=preferredColorScheme={scheme}",
        "--timeout=60000",
        "--dump-dom",
        harness.as_uri(),
    )
    match = re.search(r'<pre id="found">(.*?)</pre>', out, re.DOTALL)
    assert match is not None, (out[-2000:], log[-2000:])
    console = [line for line in log.splitlines() if "CONSOLE" in line]
    return Opened(json.loads(html.unescape(match[1])), console)
