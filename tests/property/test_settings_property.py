"""Any settings file is read, or refused with a message; nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.settings import BROKER_SETTINGS, broker_properties, load_broker_settings
from roquet.errors import ConfigError
from roquet.namesrv.settings import load_namesrv_settings

KEYS = sorted({*BROKER_SETTINGS.with_effect, *BROKER_SETTINGS.unsupported, "brokerIP1"})
VALUES = st.one_of(
    st.sampled_from(["true", "false", "0", "1", "-1", "SLAVE", "SYNC_FLUSH", "a:1;b:2", "::1", ""]),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=20),
)
LINES = st.one_of(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["=", ":", " = "]), VALUES).map("".join),
    st.text(max_size=40),
)
# These name further files, whose content is not at hand.
ANOTHER_FILE = "tls.config.file"


@given(st.lists(LINES, max_size=8).map("\n".join))
def test_text_is_read_or_refused(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.conf"
        path.write_bytes(text.replace(ANOTHER_FILE, "other").encode("utf-8", "surrogatepass"))
        for load in (load_broker_settings, load_namesrv_settings):
            try:
                said = list(load(path, {}).warnings)
            except ConfigError as error:
                said = [error]
            assert all(each.message for each in said)


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.conf"
        path.write_bytes(data)
        try:
            said = load_broker_settings(path, {}).warnings
        except ConfigError as error:
            said = [error]
        assert all(str(path) in (each.detail or "") for each in said)


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5))
def test_what_was_accepted_is_accepted_again_when_shown(asked: dict[str, str]) -> None:
    asked.pop(ANOTHER_FILE, None)
    try:
        first = load_broker_settings(None, asked)
    except ConfigError:
        return
    shown = broker_properties(first.config, first.store)
    second = load_broker_settings(None, shown)
    assert (second.config, second.store) == (first.config, first.store)
