from __future__ import annotations

import pytest

from roquet.errors import ConfigError
from roquet.model.delay_level import DelayLevels


def test_default_table_is_upstreams() -> None:
    levels = DelayLevels()
    assert levels.max_level == 18
    seconds = [(levels.deliver_timestamp_ms(level, 0)) // 1000 for level in range(1, 19)]
    minutes = [60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800]
    assert seconds == [1, 5, 10, 30, *minutes, 3600, 7200]


def test_every_unit() -> None:
    levels = DelayLevels("2s 3m 4h 5d")
    delays = [levels.deliver_timestamp_ms(level, 7) - 7 for level in range(1, 5)]
    assert delays == [2000, 180_000, 14_400_000, 432_000_000]


@pytest.mark.parametrize("level", [-1, 0, 19, 1 << 40])
def test_an_unknown_level_is_due_after_a_second(level: int) -> None:
    assert DelayLevels().deliver_timestamp_ms(level, 5) == 1005


def test_no_levels_at_all() -> None:
    assert DelayLevels("").max_level == 0


@pytest.mark.parametrize("text", ["1", "s", "1x", "1.5s", "-1s", "1s 2", "1s,2s"])
def test_a_bad_table_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel") as raised:
        DelayLevels(text)
    assert text in (raised.value.detail or "")
    assert raised.value.hint
