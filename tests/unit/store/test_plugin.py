from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from roquet.errors import ConfigError, StoreLocked
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.forward import members
from roquet.store.message_store import MessageStore, PutDone
from roquet.store.plugin import PluginMessageStore, build_store, plug_in_faults
from roquet.store.results import PutMessageResult, PutMessageStatus
from tests.unit.runtime.plugin_kit import Installed
from tests.unit.store.kit import bodies, config, message, new_store

HERE = __name__
EVERYTHING = list(members(MessageStore))


class Counting(PluginMessageStore):
    """Counts what passes, whichever method it uses."""

    def __init__(self, next_store: MessageStore) -> None:
        super().__init__(next_store)
        self.count = 0

    def submit(self, message: BrokerMessage | BatchMessage, done: PutDone | None = None) -> None:
        self.count += 1
        super().submit(message, done)

    def put_message(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        self.count += 1
        return super().put_message(message)


class Refusing(PluginMessageStore):
    """Takes no message of topic Secret."""

    def __init__(self, next_store: MessageStore) -> None:
        super().__init__(next_store)
        self.put_hooks.append(self.judge)

    @staticmethod
    def judge(message: BrokerMessage | BatchMessage) -> PutMessageResult | None:
        if message.topic == "Secret":
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, detail="not here")
        return None


class NotAPlugin:
    pass


class Broken(PluginMessageStore):
    def __init__(self, next_store: MessageStore) -> None:  # noqa: ARG002
        raise RuntimeError("cannot be made")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, HERE, sys.modules[Counting.__module__])


def chain(store: DefaultMessageStore, names: str) -> MessageStore:
    return build_store(config(message_store_plug_in=names), store)


def name_of(plug_in: type) -> str:
    return f"{HERE}:{plug_in.__name__}"


@pytest.mark.parametrize("names", ["", " ", ",", " , ,"])
def test_without_names_the_store_stands_alone(tmp_path: Path, names: str) -> None:
    store = new_store(tmp_path)
    assert chain(store, names) is store


def test_the_first_name_is_outermost(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    outer = chain(store, f"{name_of(Counting)} , {name_of(Refusing)}")
    assert type(outer) is Counting
    assert type(outer.next_store) is Refusing
    assert outer.next_store.next_store is store


def test_a_whole_life_through_plug_ins(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    outer = chain(store, f"{name_of(Counting)},{name_of(Refusing)}")
    assert isinstance(outer, Counting)
    outer.load()
    outer.start()
    assert outer.put_message(message(b"a")).is_ok
    refused = outer.put_message(message(b"b", topic="Secret"))
    assert (refused.status.value, refused.detail) == ("MESSAGE_ILLEGAL", "not here")
    answers: list[PutMessageResult] = []
    outer.submit(message(b"c"), answers.append)
    outer.finish_burst()
    assert [answer.is_ok for answer in answers] == [True]
    burst = outer.put_burst([message(b"d"), message(b"e", topic="Secret")])
    assert list(burst.refused) == [1]
    assert outer.count == 3
    assert bodies(store) == [b"a", b"c", b"d"]
    assert outer.max_offset_in_queue("T", 0) == 3
    assert outer.max_offset_in_queue("Secret", 0) == 0
    outer.shutdown()
    assert outer.is_shut_down


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("no.such.module:Class", "No module named"),
        (f"{HERE}:Missing", "Missing"),
        (f"{HERE}:NotAPlugin", "not a subclass of PluginMessageStore"),
        (f"{HERE}:HERE", "not a subclass of PluginMessageStore"),
        (f"{HERE}:", "AttributeError"),
        (":Class", "ValueError"),
        ("org.apache.rocketmq.example.Plugin", "no entry point"),
    ],
)
def test_a_bad_name_is_reported(tmp_path: Path, names: str, words: str) -> None:
    with pytest.raises(ConfigError, match="messageStorePlugIn") as raised:
        chain(new_store(tmp_path), names)
    assert repr(names) in raised.value.message
    assert words in (raised.value.detail or "")
    assert raised.value.hint


def test_one_bad_name_spoils_the_chain(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing"):
        chain(new_store(tmp_path), f"nothing:Here,{name_of(Counting)}")


def test_a_plug_in_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="messageStorePlugIn") as raised:
        chain(new_store(tmp_path), name_of(Broken))
    assert raised.value.detail == "RuntimeError: cannot be made"


def test_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = Installed(tmp_path / "site", monkeypatch)
    source = (
        "from roquet.store.plugin import PluginMessageStore\nclass Own(PluginMessageStore): ..."
    )
    points = {"roquet.message_stores": {"own": "own_store:Own"}}
    installed.distribution("own-store", "own_store", source, points)
    outer = chain(new_store(tmp_path / "store"), f"{name_of(Counting)},own")
    assert type(outer) is Counting
    assert type(outer.next_store).__name__ == "Own"
    with pytest.raises(ConfigError) as raised:
        chain(new_store(tmp_path / "store"), "other")
    assert raised.value.detail == "no entry point of that name; installed are: own"


def test_faults_at_the_start_are_attributed_to_the_plug_in(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    outer = Counting(store)
    with pytest.raises(ConfigError) as raised, plug_in_faults(outer):
        raise ZeroDivisionError("no luck")
    assert raised.value.detail == "ZeroDivisionError: no luck"
    assert "messageStorePlugIn" in (raised.value.hint or "")
    for error in (StoreLocked("in use"), OSError("disk")):
        with pytest.raises(type(error)), plug_in_faults(outer):
            raise error
    with pytest.raises(ZeroDivisionError), plug_in_faults(store):
        raise ZeroDivisionError


class Recorder:
    """Stands in for the next store and records every call and its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def __getattr__(self, name: str) -> object:
        def call(*args: object, **kwargs: object) -> str:
            self.calls.append((name, args, kwargs))
            return f"answer of {name}"

        return call


@pytest.mark.parametrize(("name", "member"), EVERYTHING)
def test_every_call_goes_to_the_next_store_unchanged(name: str, member: object) -> None:
    if not inspect.isfunction(member):
        return
    recorder = Recorder()
    store = PluginMessageStore(recorder)  # type: ignore[arg-type]
    parameters = list(inspect.signature(member).parameters.values())[1:]
    args = tuple(
        f"value of {p.name}"
        for p in parameters
        if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
    kwargs = {
        p.name: f"value of {p.name}" for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    answer = getattr(store, name)(*args, **kwargs)
    assert recorder.calls == [(name, args, kwargs)]
    assert answer == f"answer of {name}"


@pytest.mark.parametrize(("name", "member"), EVERYTHING)
def test_every_property_comes_from_the_next_store(
    tmp_path: Path, name: str, member: object
) -> None:
    if isinstance(member, property):
        store = new_store(tmp_path)
        assert getattr(PluginMessageStore(store), name) == getattr(store, name)


def test_members_keep_their_docstrings() -> None:
    for name, member in EVERYTHING:
        if name != "get_message_in_memory":
            assert getattr(PluginMessageStore, name).__doc__ == member.__doc__


class Filtering:
    """Overrides reads, as a mixin."""

    def get_message(self, *_: object, **__: object) -> None:
        """Find nothing."""


class Filtered(Filtering, PluginMessageStore):  # type: ignore[misc]
    """Gets its read from another base."""


def test_a_read_that_a_mixin_overrides_is_not_bypassed_in_memory() -> None:
    assert Filtered.get_message_in_memory is not PluginMessageStore.get_message_in_memory
    assert Refusing.get_message_in_memory is PluginMessageStore.get_message_in_memory
