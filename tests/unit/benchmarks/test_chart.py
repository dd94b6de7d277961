"""Charts: which lines become bars, and what is drawn."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks.chart import Bar, bars_of, to_svg
from benchmarks.report import Better, Line, bound, share, times

LINES = [
    Line("send", "messages/s", 100.0, 600.0, times(5)),
    Line("send", "CPU", 10.0, 2.5, share(0.2), better=Better.LESS),
    Line("send", "p99", 10.0, 2.5, better=Better.LESS),
    Line("send", "MB", 2_000.0, 50.0, bound(100, share(0.05)), better=Better.LESS),
    Line("start <fresh>", "messages/s", 100.0, 50.0, times(2), peer="Kafka"),
    Line("start", "s", None, 0.4, bound(1)),
]


def test_longer_is_always_better() -> None:
    assert bars_of(LINES) == [
        Bar("send: messages/s", 6.0, 5, passed=True),
        Bar("send: CPU", 4.0, 5.0, passed=False),
        Bar("send: MB", 40.0, 20.0, passed=True),
        Bar("start <fresh>: messages/s, Kafka", 0.5, 2, passed=False),
    ]


def test_the_picture_is_valid_and_has_every_bar() -> None:
    root = ET.fromstring(to_svg(LINES, title="Roquet & peers"))  # noqa: S314  our own
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title") == "Roquet & peers"
    texts = [element.text for element in root.iter(f"{space}text")]
    assert "start <fresh>: messages/s, Kafka" in texts
    assert {"6x", "0.5x"} <= set(texts)
    bars = [each for each in root.iter(f"{space}rect") if each.get("x")]
    assert len(bars) == 4
    width = float(root.get("width", "0"))
    assert all(0 < float(each.get("x", "0")) < width for each in bars)


def test_a_picture_without_bars() -> None:
    assert "</svg>" in to_svg([], title="nothing")
