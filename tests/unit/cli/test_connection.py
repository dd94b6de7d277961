"""How a command reaches a cluster, and ``roquet context``."""

from __future__ import annotations

import asyncio
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from roquet.cli import connection as connections
from roquet.cli.connection import Connection, connection_options, global_connection_options
from roquet.cli.context_file import ClusterSettings, contexts_path, nearest, secret_of
from roquet.cli.main import roquet
from roquet.client.acl import signature
from roquet.errors import ConfigError, ConnectFailed, NotFound
from tests.unit.cli.output_kit import error_of
from tests.unit.client.client_kit import fake_server

SECRET = "very-secret"


@click.group()
@global_connection_options
def tool() -> None:
    """A program of its own with one command that is a client."""


@tool.command()
@connection_options
def look(connection: Connection) -> None:
    """Hand the connection to the test."""
    _seen.append(connection)


_seen: list[Connection] = []


def seen(*arguments: str) -> Connection:
    """The connection that a command gets."""
    _seen.clear()
    result = CliRunner().invoke(tool, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return _seen[0]


def call(*arguments: str, input: str | None = None) -> Result:  # noqa: A002 - click's name
    return CliRunner().invoke(roquet, ["context", *arguments], input=input)


def done(*arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    return result.stdout


# -- precedence ---------------------------------------------------------------------------------


def test_no_settings_at_all() -> None:
    found = seen("look")
    assert found.namesrv == "127.0.0.1:9876"
    options = found.options()
    assert (options.tls, options.access_key, options.request_timeout_ms) == (None, "", 3_000)
    assert found.options(default_timeout_ms=7).request_timeout_ms == 7


def test_flags_before_and_after_the_command() -> None:
    found = seen(
        "-n", "a:1", "--timeout", "5s", "look", "-n", "b:2", "--namespace", "shop", "--access-key",
        "ops", "--secret-key", SECRET, "--security-token", "token",
    )  # fmt: skip
    options = found.options()
    assert options.namesrv_addresses == ("b:2",)
    assert options.request_timeout_ms == found.timeout_ms == 5_000
    assert (options.access_key, options.secret_key) == ("ops", SECRET)
    assert (options.security_token, options.namespace) == ("token", "shop")
    assert (found.wrap("Orders"), found.unwrap("shop%Orders")) == ("shop%Orders", "Orders")
    assert SECRET not in repr(found)


def test_tls() -> None:
    options = seen(
        "look", "--tls-ca", "ca.pem", "--tls-cert", "c.pem", "--tls-key", "k.pem",
        "--tls-no-verify", "--tls-key-password", SECRET,
    ).options()  # fmt: skip
    assert options.tls is not None
    assert (options.tls.ca_file, options.tls.verify) == (Path("ca.pem"), False)
    assert (options.tls.certificate_file, options.tls.key_file) == (Path("c.pem"), Path("k.pem"))
    assert options.tls.key_password == SECRET
    plain = seen("look", "--tls").options()
    assert plain.tls is not None
    assert plain.tls.verify
    assert seen("look", "--tls-ca", "ca.pem", "--no-tls").options().tls is None


def test_the_environment_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    monkeypatch.setenv("ROQUET_ACCESS_KEY", "who")
    monkeypatch.setenv("ROQUET_SECRET_KEY", SECRET)
    assert seen("look").options().namesrv_addresses == ("env:1",)
    assert seen("look").options().secret_key == SECRET
    done("add", "prod", "-n", "p:1", "--access-key", "ops", "--secret-key", "other")
    options = seen("look").options()
    assert options.namesrv_addresses == ("p:1",)
    assert (options.access_key, options.secret_key) == ("ops", "other")


def test_contexts_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    done("add", "one", "-n", "one:1", "--access-key", "a", "--secret-key", SECRET)
    done("add", "two", "-n", "two:2", "--tls", "--timeout", "9s")
    assert seen("look").namesrv == "one:1"
    assert seen("look", "--context", "two").namesrv == "two:2"
    assert seen("--context", "two", "look").options().request_timeout_ms == 9_000
    monkeypatch.setenv("ROQUET_CONTEXT", "two")
    assert seen("look").namesrv == "two:2"
    assert seen("look", "--context", "one").namesrv == "one:1"
    monkeypatch.delenv("ROQUET_CONTEXT")
    done("use", "two")
    assert seen("look").options().tls is not None


def test_another_cluster_gets_nothing_of_the_context() -> None:
    done("add", "prod", "-n", "p:1", "--access-key", "a", "--secret-key", SECRET)
    assert seen("look", "-n", "b:1").options().secret_key == ""
    other = seen("look", "-n", "b:1", "--context", "prod").options()
    assert (other.namesrv_addresses, other.secret_key) == (("b:1",), SECRET)


def test_another_access_key_does_not_go_with_the_secret_of_the_context() -> None:
    done("add", "prod", "-n", "p:1", "--access-key", "a", "--secret-key", SECRET)
    found = seen("look", "--access-key", "b", "--secret-key", "mine").options()
    assert (found.access_key, found.secret_key) == ("b", "mine")
    with pytest.raises(ConfigError, match="go together"):
        seen("look", "--access-key", "b").options()


def test_the_source_of_the_addresses_is_reported() -> None:
    failure = ConnectFailed("No name server responds", code="no_name_server", hint="Is it running?")
    assert "roquet dev" in str(seen("look").explained(failure))
    assert "--namesrv" in str(seen("look", "-n", "a:1").explained(failure))
    done("add", "prod", "-n", "p:1")
    told = seen("look").explained(failure)
    assert told.hint == "Is it running? Their addresses are those of the context prod."
    assert told.exit_code == failure.exit_code
    broker = seen("look").explained(ConnectFailed("Cannot connect to 10.0.0.9:10911"))
    assert "brokerIP1" in (broker.hint or "")
    other = NotFound("There is none")
    assert seen("look").explained(other) is other


@pytest.mark.parametrize("flags", [("--timeout", "5"), ("--timeout", "0s"), ("-n", ""), ("-n",)])
def test_bad_flags(flags: tuple[str, ...]) -> None:
    assert CliRunner().invoke(tool, ["look", *flags]).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "ls", "--nonsense"),
        ("topic", "ls", "--timeout", "5"),
        ("topic", "create", "T", "--queues", "x"),
        ("topic", "show"),
        ("topic", "nonsense"),
    ],
)
def test_a_bad_command_line_is_reported_in_the_requested_format(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(roquet, [*words, "--json"])
    assert (result.exit_code, error_of(result)["code"]) == (2, "usage")
    assert error_of(result)["hint"].endswith("--help")
    result = CliRunner().invoke(roquet, words)
    assert (result.exit_code, result.stderr.startswith("Usage:")) == (2, True)


def test_an_unknown_context_is_reported_in_the_requested_format() -> None:
    done("add", "prod", "-n", "p:1")
    result = CliRunner().invoke(roquet, ["topic", "ls", "--context", "prd", "--json"])
    assert result.exit_code == 1
    assert (error_of(result)["code"], error_of(result)["hint"]) == (
        "not_found",
        "Did you mean prod?",
    )


# -- secrets ------------------------------------------------------------------------------------


def test_where_secrets_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\nand more\n")
    monkeypatch.setenv("MY_SECRET", SECRET)
    assert secret_of(f"file:{file}") == secret_of("env:MY_SECRET") == secret_of(SECRET) == SECRET


@pytest.mark.parametrize("text", ["", "\n", "  \nx"])
def test_no_secret_in_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text)
    with pytest.raises(ConfigError, match="holds no secret"):
        secret_of(f"file:{file}")


def test_no_secret_at_all(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for text in ("env:NO_SUCH_VARIABLE", f"file:{tmp_path / 'none'}", f"file:{binary}"):
        with pytest.raises(ConfigError):
            secret_of(text)


def test_a_secret_may_be_typed() -> None:
    flags = ("-n", "p:1", "--access-key", "a", "--secret-key", "-")
    result = call("add", "prod", *flags, input=f"{SECRET}\n")
    assert result.exit_code == 0
    assert SECRET not in result.output
    assert seen("look").options().secret_key == SECRET


# -- the file of contexts -----------------------------------------------------------------------


def shown(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done("show", *arguments, "--json"))
    return found


def test_the_life_of_a_context() -> None:
    assert done("add", "prod", "-n", "a:1;b:2", "--access-key", "k", "--secret-key", SECRET) == (
        "Added prod, the current context\n"
    )
    assert done("add", "test", "-n", "t:1") == "Added test\n"
    assert shown("prod") == {
        "name": "prod",
        "current": True,
        "settings": {"namesrv": "a:1;b:2", "accessKey": "k", "secretKey": "***"},
    }
    assert "***" in done("show")
    assert done("use", "test") == "test is the current context\n"
    listed = json.loads(done("ls", "--json"))
    assert [(each["name"], each["current"]) for each in listed] == [("prod", False), ("test", True)]
    assert done("ls").startswith("2 contexts\n")
    assert call("delete", "test", input="n\n").exit_code == 1
    assert shown()["name"] == "test"
    assert done("delete", "test", "--yes") == "Deleted test: there is no current context\n"
    assert call("show").exit_code == 2
    assert call("use", "test").exit_code == 1


def test_a_context_is_replaced_only_on_request() -> None:
    done("add", "prod", "-n", "a:1")
    result = call("add", "prod", "-n", "b:1", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (1, "already_exists")
    done("add", "other", "-n", "c:1", "--use")
    done("add", "prod", "-n", "b:1", "--replace")
    assert shown("prod")["settings"] == {"namesrv": "b:1"}
    assert shown()["name"] == "other"


@pytest.mark.parametrize(
    "arguments",
    [
        ("prod",),
        ("prod", "-n", "nowhere"),
        ("prod", "-n", "a:1", "--access-key", "k"),
        ("no name", "-n", "a:1"),
        ("-x", "-n", "a:1"),
        ("x" * 64, "-n", "a:1"),
    ],
)
def test_unusable_contexts_are_not_added(arguments: tuple[str, ...]) -> None:
    assert call("add", *arguments).exit_code == 2
    assert not contexts_path().exists()


def test_paths_work_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done(
        "add", "p", "-n", "a:1", "--tls-ca", "ca.pem", "--access-key", "k", "--secret-key", "file:s"
    )
    settings = shown("p")["settings"]
    assert settings["tlsCa"] == str(tmp_path / "ca.pem")
    assert settings["secretKey"] == f"file:{tmp_path / 's'}"


def test_only_the_owner_can_read_the_file(no_contexts: Path) -> None:
    done("add", "prod", "-n", "a:1")
    path = no_contexts / "roquet" / "contexts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "Warning" not in call("ls").output
    path.chmod(0o644)
    assert "others can read" in call("ls").stderr
    done("use", "prod")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["contexts.json"]


def test_many_at_once_lose_nothing() -> None:
    from roquet.cli.context_file import Contexts, change_contexts, load_contexts

    def add(number: int) -> None:
        def change(contexts: Contexts) -> None:
            contexts.contexts[f"c{number}"] = ClusterSettings(namesrv=f"h:{number + 1}")

        change_contexts(change)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert len(load_contexts().contexts) == 40


@pytest.mark.parametrize("text", ["{", '{"schema":2}', '{"schema":1,"more":1}', "\xff"])
def test_a_file_that_cannot_be_parsed(text: str) -> None:
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_bytes(text.encode("latin-1"))
    result = call("ls", "--json")
    assert (result.exit_code, error_of(result)["code"]) == (2, "config")
    assert call("add", "x", "-n", "a:1").exit_code == 2
    assert contexts_path().read_bytes() == text.encode("latin-1")
    assert (
        connections.connection_of(ClusterSettings(namesrv="a:1"), environment={}).namesrv == "a:1"
    )


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "contexts.json"
    target.parent.mkdir()
    contexts_path().parent.mkdir(parents=True)
    contexts_path().symlink_to(target)
    done("add", "prod", "-n", "a:1")
    assert contexts_path().is_symlink()
    assert b"a:1" in target.read_bytes()


def test_a_home_without_a_settings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts_path() == tmp_path / ".config" / "roquet" / "contexts.json"


def test_nearest() -> None:
    assert nearest("orders", ["Orders", "Bills"]) == "Did you mean Orders?"
    assert nearest("Zebra", ["Orders", "Bills"]) is None


# -- signatures ---------------------------------------------------------------------------------


async def test_requests_are_signed_and_secrets_never_sent(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    flags = ("--access-key", "ops", "--secret-key", f"file:{secret}", "--security-token", "ticket")
    async with fake_server() as server:
        command = ["topic", "show", "T", "-n", server.address, *flags]
        result = await asyncio.to_thread(CliRunner().invoke, roquet, command)
    assert result.exit_code == 3
    assert server.fields
    for fields in server.fields:
        assert (fields["AccessKey"], fields["SecurityToken"]) == ("ops", "ticket")
        assert fields["Signature"] == signature(
            {name: value for name, value in fields.items() if name != "Signature"}, b"", SECRET
        )
    assert SECRET not in result.output
