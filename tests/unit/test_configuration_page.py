"""The page of settings matches the program."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec import Struct

from roquet.broker.config import BrokerConfig
from roquet.broker.settings import BROKER_SETTINGS
from roquet.namesrv.config import DYNAMIC_KEYS, NamesrvConfig
from roquet.namesrv.settings import NAMESRV_SETTINGS
from roquet.remoting.tls_settings import TlsSettings
from roquet.runtime.settings import SettingsTable, Unsupported, expected_value, to_properties
from roquet.store.config import MessageStoreConfig

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"

# These depend on the machine or on the caller.
DEFAULTS_IN_WORDS = {
    "brokerName": "the machine's name",
    "storePathRootDir": "`~/store`",
    "kvConfigPath": "`~/namesrv/kvConfig.json`",
    "configStorePath": "`~/namesrv/namesrv.properties`",
}


def section(title: str) -> str:
    """The text below a heading, up to the next of its kind."""
    text = PAGE.read_text("utf-8")
    mark, _, name = title.partition(" ")
    match = re.search(rf"(?ms)^{mark} {re.escape(name)}$(.*?)(?=^#{{1,{len(mark)}}} |\Z)", text)
    assert match is not None, title
    return match[1]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("## Broker", BrokerConfig),
        ("## Store", MessageStoreConfig),
        ("## Name server", NamesrvConfig),
        ("## TLS", TlsSettings),
    ],
)
def test_every_setting_is_listed_with_its_default(title: str, kind: type[Struct]) -> None:
    expected = [
        [
            f"`{key}`",
            DEFAULTS_IN_WORDS.get(key, f"`{value}`" if value else ""),
            expected_value(kind, key),
        ]
        for key, value in to_properties(kind()).items()
    ]
    listed = rows(section(title))
    assert [cells[:3] for cells in listed] == expected
    assert [cells[0] for cells in listed if not cells[3]] == []


@pytest.mark.parametrize(
    ("title", "unsupported"),
    [
        ("### By brokers", BROKER_SETTINGS.unsupported.values()),
        ("### By name servers", NAMESRV_SETTINGS.unsupported.values()),
    ],
)
def test_refused_keys_are_listed(title: str, unsupported: Iterable[Unsupported]) -> None:
    listed = {cells[0]: (set(quoted(cells[1])), cells[2]) for cells in rows(section(title))}
    assert listed == {
        f"`{each.key}`": (set(each.accepted) - {""}, each.reason) for each in unsupported
    }


@pytest.mark.parametrize(
    ("title", "table"),
    [
        ("### In a broker's file", BROKER_SETTINGS),
        ("### In a name server's file", NAMESRV_SETTINGS),
    ],
)
def test_keys_without_effect_are_listed_with_the_reason(title: str, table: SettingsTable) -> None:
    listed: dict[str, str] = {}
    for item in re.split(r"(?m)^- ", section(title)):
        words = " ".join(item.split())
        reason = words.partition(":** ")[0].removeprefix("**")
        listed |= dict.fromkeys(quoted(words), reason)
    expected = {key: group.reason for key, group in table.without_effect.items()}
    assert listed == {key: reason[:1].upper() + reason[1:] for key, reason in expected.items()}


def test_keys_that_a_request_may_change_are_listed() -> None:
    text = section("## Name server").partition("A request may change")[2]
    assert set(quoted(text.partition("and nothing else")[0])) == DYNAMIC_KEYS
