"""``roquet mqadmin``: what the comparison with upstream's tool does not reach."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from roquet.cli.main import roquet
from roquet.cli.mqadmin.catalogue import CommandSpec, all_specs
from roquet.cli.mqadmin.message_text import body_file
from roquet.cli.mqadmin.tool import Tool
from roquet.client import ReceivedMessage
from roquet.model.properties import encode_properties
from roquet.testing.background import BackgroundBroker, background_broker

REFUSED = [spec for spec in all_specs() if spec.refusal is not None]
BUILT = [spec for spec in all_specs() if spec.refusal is None]


@pytest.fixture(scope="module")
def running() -> Iterator[BackgroundBroker]:
    with background_broker() as found:
        yield found


def call(broker: BackgroundBroker, *words: str) -> Result:
    return CliRunner().invoke(roquet, ["mqadmin", *words, "-n", broker.namesrv])


def done(broker: BackgroundBroker, *words: str) -> str:
    result = call(broker, *words)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_enough_commands() -> None:
    assert len(BUILT) >= 45


@pytest.mark.parametrize("spec", BUILT, ids=lambda spec: spec.name)
def test_every_command_has_a_handler(spec: CommandSpec) -> None:
    module = importlib.import_module(f"roquet.cli.mqadmin.{spec.area}")
    assert callable(module.COMMANDS[spec.name])


def test_no_handler_without_a_command() -> None:
    for area in {spec.area for spec in BUILT}:
        module = importlib.import_module(f"roquet.cli.mqadmin.{area}")
        assert set(module.COMMANDS) == {spec.name for spec in BUILT if spec.area == area}


@pytest.mark.parametrize("words", [("nosuch",), ("help", "nosuch")])
def test_unknown_command(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(roquet, ["mqadmin", *words])
    assert (result.exit_code, result.output) == (0, "The sub command nosuch not exist.\n")


@pytest.mark.parametrize(
    ("words", "names"), [(["topicR"], ["topicRoute"]), (["help", "topicR"], ["topicRoute"])]
)
def test_completion(words: list[str], names: list[str]) -> None:
    *given, incomplete = words
    found = ShellComplete(roquet, {}, "roquet", "_ROQUET_COMPLETE").get_completions(
        ["mqadmin", *given], incomplete
    )
    assert [each.value for each in found] == names
    complete = ShellComplete(roquet, {}, "roquet", "_ROQUET_COMPLETE")
    assert not complete.get_completions(["mqadmin", "topicRoute"], "t")


def test_bad_flags() -> None:
    result = CliRunner().invoke(roquet, ["mqadmin", "topicRoute", "-z"])
    assert (result.exit_code, result.stderr) == (1, "Unrecognized option: -z\n")
    assert result.stdout.startswith("usage: mqadmin topicRoute ")


@pytest.mark.parametrize("spec", REFUSED, ids=lambda spec: spec.name)
def test_refused_by_name(spec: CommandSpec) -> None:
    groups = {flag.group: flag for flag in spec.flags if flag.group}
    needed = [flag for flag in spec.flags if flag.is_required] + list(groups.values())
    words = [word for flag in needed for word in (f"-{flag.short}", "1")]
    result = CliRunner().invoke(roquet, ["mqadmin", spec.name, *words])
    expected = f"roquet does not have {spec.name}: {spec.refusal}.\n"
    assert (result.exit_code, result.stderr) == (2, expected)


def test_names_in_any_case(running: BackgroundBroker) -> None:
    assert done(running, "CLUSTERLIST").startswith("#Cluster Name")


def test_failure_in_upstreams_words(running: BackgroundBroker) -> None:
    result = call(running, "topicRoute", "-t", "Nowhere")
    assert (result.exit_code, result.stdout) == (0, "")
    first, second, *_ = result.stderr.splitlines()
    package = "org.apache.rocketmq."
    assert (
        first == f"{package}tools.command.SubCommandException: TopicRouteSubCommand command failed"
    )
    assert second == (
        f"Caused by: {package}client.exception.MQClientException: CODE: 17  DESC: No topic route "
        "info in name server for the topic: Nowhere"
    )


def test_no_name_server() -> None:
    result = CliRunner().invoke(roquet, ["mqadmin", "topicList", "-n", "127.0.0.1:1"])
    assert result.exit_code == 0
    assert result.stderr.splitlines()[-1] == (
        "Caused by: org.apache.rocketmq.remoting.exception.RemotingConnectException: "
        "connect to 127.0.0.1:1 failed"
    )


def test_malformed_number(running: BackgroundBroker) -> None:
    words = ["updateTopic", "-b", running.address, "-t", "X", "-r", "many"]
    result = call(running, *words)
    assert result.stderr.splitlines()[-1] == (
        'Caused by: java.lang.NumberFormatException: For input string: "many"'
    )


def test_missing_target(running: BackgroundBroker) -> None:
    assert done(running, "deleteSubGroup", "-g", "g").startswith("usage: mqadmin deleteSubGroup")


def test_unknown_cluster(running: BackgroundBroker) -> None:
    printed = done(running, "updateTopic", "-c", "Nowhere", "-t", "X")
    assert printed.startswith("[error] Make sure the specified clusterName exists")


def test_json(running: BackgroundBroker) -> None:
    made = done(running, "updateTopic", "-b", running.address, "-t", "Facts", "-r", "2", "--json")
    found = json.loads(made)
    assert found["command"] == "updateTopic"
    assert found["results"][0] == {"topic": "Facts", "broker": running.address}
    assert found["results"][1]["settings"]["readQueueNums"] == 2
    topics = json.loads(done(running, "topicList", "--json"))["results"]
    assert {"topic": "Facts"} in topics
    words = ["sendMessage", "-t", "Facts", "-p", "hello", "-b", running.name, "-i", "1", "--json"]
    [sent] = json.loads(done(running, *words))["results"]
    assert sent["result"]["status"] == "SEND_OK"
    printed = json.loads(done(running, "printMsg", "-t", "Facts", "--json"))["results"]
    [message] = [each for each in printed if "message" in each]
    assert (message["body"], message["message"]["queueId"]) == ("hello", 1)


def test_json_failure(running: BackgroundBroker) -> None:
    result = call(running, "topicRoute", "-t", "Nowhere", "--json")
    assert result.exit_code == 1
    error = json.loads(result.stderr)["error"]
    assert (error["type"], error["code"]) == ("MQClientException", 17)


def test_interrupted(running: BackgroundBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(_tool: Tool, _seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Tool, "pause", interrupt)
    result = call(running, "clusterList", "-i", "1")
    assert result.exit_code == 130
    assert result.stdout.count("#Cluster Name") == 1


def test_context_and_global_flags(
    running: BackgroundBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(roquet, [*words])
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    wanted = done(running, "topicList")
    assert run("-n", running.namesrv, "mqadmin", "topicList") == wanted
    monkeypatch.setenv("NAMESRV_ADDR", running.namesrv)
    assert run("mqadmin", "topicList") == wanted


def test_body_file_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "rocketmq" / "msgbodys"
    victim = tmp_path / "victim"
    victim.write_bytes(b"safe")
    names = {"UNIQ_KEY": "../../victim"}
    message = ReceivedMessage(topic="T", raw_body=b"bad", properties_data=encode_properties(names))
    path = Path(body_file(message))
    assert (path.parent, path.read_bytes()) == (folder, b"bad")
    assert victim.read_bytes() == b"safe"
    linked = ReceivedMessage(
        topic="T", raw_body=b"new", properties_data=encode_properties({"UNIQ_KEY": "A1"})
    )
    (folder / "A1").symlink_to(victim)
    assert Path(body_file(linked)).read_bytes() == b"new"
    assert victim.read_bytes() == b"safe"
