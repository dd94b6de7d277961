"""Plug-ins of users: installed, named in settings, and at work in a broker."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.broker.plugins import BrokerHooks, load_hooks
from roquet.broker.settings import load_broker_settings
from roquet.errors import ConfigError
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.admin import DeleteTopicRequestHeader
from roquet.remoting.hooks import RpcCall, RpcHook
from roquet.testing.hooked_files import QuickFiles
from tests.integration.broker.broker_kit import bodies, config, pull, send, store_config
from tests.integration.cli.server_kit import run
from tests.patience import PATIENT
from tests.unit.runtime.plugin_kit import Installed

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "plugins.md"


def block(language: str) -> str:
    """The one block of the guide in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    text: str = found
    return text


@pytest.fixture(name="installed")
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path / "site", monkeypatch)


@pytest.fixture(name="acme")
def _acme(installed: Installed) -> Installed:
    """The example of the guide, installed as its pyproject.toml says."""
    points = tomllib.loads(block("toml"))["project"]["entry-points"]
    installed.distribution("acme-plugins", "acme_plugins", block("python"), points)
    return installed


@pytest.fixture(name="client")
async def _client() -> AsyncIterator[RemotingClient]:
    async with RemotingClient(config=PATIENT) as made:
        yield made


@pytest.mark.usefixtures("acme")
async def test_the_example_of_the_guide_works(tmp_path: Path, client: RemotingClient) -> None:
    (tmp_path / "broker.conf").write_text(block("properties"))
    small = {"mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "100", "maxIndexNum": "400"}
    place = {"storePathRootDir": str(tmp_path / "store"), "listenPort": "0"}
    settings = load_broker_settings(tmp_path / "broker.conf", {**small, **place})
    assert not settings.warnings
    async with Broker(settings.config, settings.store, files=QuickFiles()) as broker:
        assert (await send(client, broker, b"text")).code == ResponseCode.SUCCESS
        refused = await send(client, broker, b"\xff\xfe")
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        salary = await send(client, broker, b"much", topic="Salaries")
        assert (salary.code, salary.remark) == (ResponseCode.NO_PERMISSION, "not for you")
        assert broker.topics.select("Salaries") is None
        pulled = await pull(client, broker, 0)
        assert list(bodies(pulled)) == [b"text"]
        assert sys.modules["acme_plugins"].Meter.pulled == {"billing": 1}
        header = DeleteTopicRequestHeader(topic="Orders")
        kept = await client.invoke(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        assert (kept.code, kept.remark) == (ResponseCode.NO_PERMISSION, "topics stay")
        assert broker.topics.select("Orders") is not None


# ------------------------------------------------------------------------------ which hooks


class Plain:
    """A hook around messages."""

    def __init__(self, settings: BrokerConfig) -> None:
        self.settings = settings

    def before(self, context: object) -> None:
        """Let it pass."""

    def after(self, context: object) -> None:
        """Let it be."""


class Second(Plain):
    """Another."""


HERE = __name__


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, HERE, sys.modules[Plain.__module__])


def test_without_settings_there_are_no_hooks() -> None:
    assert load_hooks(BrokerConfig()) == BrokerHooks()


@pytest.mark.usefixtures("acme")
def test_installed_hooks_that_are_not_named_are_not_loaded() -> None:
    assert load_hooks(BrokerConfig()) == BrokerHooks()
    assert "acme_plugins" not in sys.modules


def test_hooks_are_ordered_by_their_names_and_get_the_settings() -> None:
    settings = BrokerConfig(send_message_hooks=f"{HERE}:Second, {HERE}:Plain")
    mine = Plain(settings)
    loaded = load_hooks(settings, BrokerHooks(send=[mine]))
    assert [type(each).__name__ for each in loaded.send] == ["Second", "Plain", "Plain"]
    assert loaded.send[2] is mine
    assert all(isinstance(each, Plain) and each.settings is settings for each in loaded.send)
    assert (loaded.consume, loaded.rpc) == ([], [])


@pytest.mark.parametrize(
    ("setting", "field", "group"),
    [
        ("sendMessageHooks", "send_message_hooks", "roquet.send_hooks"),
        ("consumeMessageHooks", "consume_message_hooks", "roquet.consume_hooks"),
        ("rpcHooks", "rpc_hooks", "roquet.rpc_hooks"),
    ],
)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nothing", "no entry point of that name"),
        ("no_such_module:Hook", "No module named"),
        (f"{HERE}:HERE", "is neither a class nor a function"),
        ("builtins:int", "TypeError: int() argument must be"),
        ("builtins:repr", "has no method before"),
    ],
)
def test_a_hook_name_that_cannot_be_used(
    setting: str, field: str, group: str, name: str, words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_hooks(BrokerConfig(**{field: name}))  # type: ignore[arg-type]
    assert raised.value.message == f"{setting} names {name!r}, which cannot be used."
    assert words in (raised.value.detail or "")
    assert group in (raised.value.hint or "")


def test_a_hook_of_the_wrong_kind() -> None:
    with pytest.raises(ConfigError) as raised:
        load_hooks(BrokerConfig(rpc_hooks=f"{HERE}:Plain"))
    assert "no method before_request and no method after_response" in (raised.value.detail or "")


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("sendMessageHooks=gaurd", "installed are: guard"),
        ("rpcHooks=broken_plugin:Hook", "ZeroDivisionError"),
        ("messageStorePlugIn=broken_plugin:Store", "ZeroDivisionError"),
        ("messageStorePlugIn=late_plugin:Store", "RuntimeError: no disk today"),
    ],
)
def test_a_broker_with_a_bad_plug_in_does_not_start(
    tmp_path: Path, acme: Installed, conf: str, words: str
) -> None:
    acme.module("broken_plugin", "1 / 0")
    acme.module(
        "late_plugin",
        "from roquet.store.plugin import PluginMessageStore\n"
        "class Store(PluginMessageStore):\n"
        "    def start(self):\n"
        "        raise RuntimeError('no disk today')\n",
    )
    settings = f"{conf}\nlistenPort=0\nstorePathRootDir={tmp_path / 'store'}\n"
    settings += "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    (tmp_path / "broker.conf").write_text(settings)
    path = ":".join([str(acme.folder), *sys.path])
    ended = run("broker", "-c", "broker.conf", home=tmp_path, environment={"PYTHONPATH": path})
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
    assert "HINT: " in ended.stderr
    assert "Traceback" not in ended.stderr


# ------------------------------------------------------------------------------ hooks that fail


class Failing:
    """A hook around messages that always fails."""

    def before(self, context: object) -> None:
        raise ValueError(context)

    def after(self, context: object) -> None:
        raise ValueError(context)


class FailingRpc(RpcHook):
    """Fails for pulls, and for requests of the broker's own."""

    def before_request(self, call: RpcCall) -> None:
        if call.request.code == RequestCode.PULL_MESSAGE or not call.is_incoming:
            raise ZeroDivisionError


async def test_failing_hooks_of_messages_change_nothing(
    tmp_path: Path, client: RemotingClient
) -> None:
    hooks = BrokerHooks(send=[Failing()], consume=[Failing()])
    running = Broker(config(tmp_path), store_config(), files=QuickFiles(), hooks=hooks)
    async with running as broker:
        for number in range(3):
            assert (await send(client, broker, b"%d" % number)).code == ResponseCode.SUCCESS
        assert list(bodies(await pull(client, broker, 0))) == [b"0", b"1", b"2"]


async def test_a_failing_rpc_hook_fails_its_request_and_no_other(
    tmp_path: Path, client: RemotingClient
) -> None:
    hooks = BrokerHooks(rpc=[FailingRpc()])
    running = Broker(config(tmp_path), store_config(), files=QuickFiles(), hooks=hooks)
    async with running as broker:
        assert (await send(client, broker, b"one")).code == ResponseCode.SUCCESS
        failed = await pull(client, broker, 0)
        assert failed.code == ResponseCode.SYSTEM_ERROR
        assert failed.remark == "ZeroDivisionError while handling PULL_MESSAGE"
        assert (await send(client, broker, b"two")).code == ResponseCode.SUCCESS
