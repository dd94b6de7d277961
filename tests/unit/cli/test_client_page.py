"""The page of the client commands lists what they take and write."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from roquet.cli.bench import BenchReport, LatencyFacts, bench
from roquet.cli.broker_set import set_broker
from roquet.cli.broker_show import BrokerView, list_brokers, show_broker
from roquet.cli.broker_state import BrokerState
from roquet.cli.client import EXIT_INTERRUPTED
from roquet.cli.cluster import ClusterFacts, cluster
from roquet.cli.context import context
from roquet.cli.group import GroupFacts, GroupQueue, group
from roquet.cli.group_clients import ClientFacts, GroupClients, Subscription
from roquet.cli.main import roquet
from roquet.cli.message import ShownMessage, TrackFacts, message
from roquet.cli.message_format import MARKS
from roquet.cli.message_line import MessageLine
from roquet.cli.offset import GroupLag, QueueProgress, offset
from roquet.cli.offset_reset import OffsetMove, ResetFacts
from roquet.cli.send import SentLine, send
from roquet.cli.tail import tail
from roquet.cli.topic import QueueFacts, TopicFacts, topic
from roquet.errors import BadName, ConnectFailed, PermissionRefused

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli-client.md").read_text("utf-8")

COMMANDS: dict[str, click.Command] = {
    "send": send,
    "tail": tail,
    **{f"bench {name}": each for name, each in bench.commands.items()},
    **{f"topic {name}": each for name, each in topic.commands.items()},
    **{f"group {name}": each for name, each in group.commands.items()},
    **{f"offset {name}": each for name, each in offset.commands.items()},
    **{f"message {name}": each for name, each in message.commands.items()},
    **{f"cluster {name}": each for name, each in cluster.commands.items()},
    "broker ls": list_brokers,
    "broker set": set_broker,
    "broker show": show_broker,
}


def section(name: str) -> str:
    match = re.search(rf"(?ms)^## (?:roquet )?{name}\b(.*?)(?=^## |\Z)", PAGE)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_listed(name: str) -> None:
    options = [each for each in COMMANDS[name].params if isinstance(each, click.Option)]
    named = {
        flag for each in options if not each.hidden for flag in (*each.opts, *each.secondary_opts)
    }
    cells = re.findall(r"(?m)^\| (`-.*?) \| (?!the last)", section(name))
    assert {flag for cell in cells for flag in re.findall(r"(?<![\w-])(--?[\w-]+)", cell)} == named


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_a_help_stay_lines(name: str) -> None:
    assert r"\b" not in (COMMANDS[name].help or "")


def test_every_flag_of_a_connection_is_listed() -> None:
    options = [each for each in roquet.params if isinstance(each, click.Option)]
    named = {flag for each in options for flag in each.opts} - {"--version"}
    cells = re.findall(r"(?m)^\| (`-.*?) \|", section("Which cluster"))
    assert {flag for cell in cells for flag in re.findall(r"(?<![\w-])(--?[\w-]+)", cell)} == named
    text = section("context")
    for name, command in context.commands.items():
        assert f"roquet context {name}" in text
        own = {flag for each in command.params for flag in each.opts if flag.startswith("--")}
        assert all(flag in text for flag in own - named - {"--json"})


def test_exit_codes_are_listed() -> None:
    codes = {int(code) for code in re.findall(r"(?m)^\| (\d+) \|", PAGE)}
    kinds = (BadName, ConnectFailed, PermissionRefused)
    assert codes >= {0, 1, EXIT_INTERRUPTED, *(kind.exit_code for kind in kinds)}


def test_every_mark_is_listed() -> None:
    assert set(re.findall(r"(?m)^\| `(%.)` \|", PAGE)) == {*MARKS, "%%"}


def test_every_field_is_listed() -> None:
    text = section("Messages as lines of JSON")
    assert set(re.findall(r"`(\w+)`", text)) >= set(MessageLine.__struct_encode_fields__)
    kinds = {
        "send": (SentLine,),
        "bench send": (BenchReport, LatencyFacts),
        "topic show": (TopicFacts, QueueFacts),
        "group show": (GroupFacts, GroupQueue),
        "group clients": (GroupClients, ClientFacts, Subscription),
        "offset ls": (GroupLag,),
        "offset show": (QueueProgress,),
        "offset reset": (ResetFacts, OffsetMove),
        "message show": (ShownMessage, TrackFacts),
        "cluster ls": (ClusterFacts,),
        "broker ls": (BrokerState,),
        "broker show": (BrokerView,),
    }
    for name, structs in kinds.items():
        named = set(re.findall(r'"(\w+)":', section(name)))
        assert named >= {each for kind in structs for each in kind.__struct_encode_fields__}
