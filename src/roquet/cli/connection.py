"""How a command reaches a cluster: by flags, by a context, by the environment.

Owns the flags, which every client command and ``roquet`` itself take, and the resulting
:class:`Connection`. Each setting comes from the first of these that has it:

1. the flags, those of the sub-command before those of ``roquet``;
2. a context: the one of ``--context``, or else of the variable ROQUET_CONTEXT, or else the current
   one. ``--namesrv`` alone names another cluster, so no context is used then;
3. the environment: NAMESRV_ADDR, ROQUET_ACCESS_KEY, ROQUET_SECRET_KEY, ROQUET_SECURITY_TOKEN;
4. the defaults: 127.0.0.1:9876 in plain text, unsigned.

A command gets one with :func:`connection_options`, as ``connection``::

    @click.command()
    @connection_options
    def command(*, connection: Connection) -> None: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

import click
from msgspec import Struct, structs

from roquet.cli.context_file import SECRETS, ClusterSettings, load_contexts, secret_of
from roquet.cli.output import parse_span_ms
from roquet.errors import BrokerRefused, ConnectFailed, RoquetError

if TYPE_CHECKING:
    from roquet.client import ClientOptions
    from roquet.remoting.tls import ClientTlsConfig

__all__ = [
    "Connection",
    "complete_context",
    "connection_of",
    "connection_of_flags",
    "connection_options",
    "context_of_flags",
    "global_connection_options",
    "note_namesrv",
    "settings_of_flags",
    "settings_options",
]

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_NAMESRV = "127.0.0.1:9876"
DEFAULT_TIMEOUT_MS = 3_000

_META_KEY = "roquet.connection"
_CONTEXT = "context"
_NAMESRV = "namesrv"
_KEYS = frozenset({"access_key", "secret_key", "security_token"})
_ENVIRONMENT = {
    "namesrv": "NAMESRV_ADDR",
    "access_key": "ROQUET_ACCESS_KEY",
    "secret_key": "ROQUET_SECRET_KEY",
    "security_token": "ROQUET_SECURITY_TOKEN",
}
_CONTEXT_VARIABLE = "ROQUET_CONTEXT"


class Connection(Struct, frozen=True, kw_only=True):
    """A cluster, and how to reach it.

    Attributes:
        settings: The settings, with secrets resolved.
        origin: Where the name servers were set, as text.
    """

    settings: ClusterSettings
    origin: str

    @property
    def namesrv(self) -> str:
        """The name servers, separated by semicolons."""
        return self.settings.namesrv or DEFAULT_NAMESRV

    @property
    def timeout_ms(self) -> int | None:
        """The timeout of a request; ``None`` if not set."""
        return self.settings.timeout_ms

    @property
    def namespace(self) -> str:
        """The namespace of topics and groups; empty for none."""
        return self.settings.namespace or ""

    def options(self, *, default_timeout_ms: int = DEFAULT_TIMEOUT_MS) -> ClientOptions:
        """The options for a producer, a consumer or an admin.

        Raises:
            ConfigError: A setting cannot be used.
        """
        from roquet.client import ClientOptions

        said = self.settings
        found = ClientOptions(
            namesrv=self.namesrv,
            namespace=self.namespace,
            access_key=said.access_key or "",
            secret_key=said.secret_key or "",
            security_token=said.security_token or "",
            tls=_tls_of(said),
            request_timeout_ms=said.timeout_ms or default_timeout_ms,
        )
        found.check()
        return found

    def wrap(self, name: str) -> str:
        """A topic or group as brokers know it."""
        from roquet.client.names import wrap

        return wrap(self.namespace, name)

    def unwrap(self, name: str) -> str:
        """A topic or group as users of the namespace know it."""
        from roquet.client.names import unwrap

        return unwrap(self.namespace, name)

    def explained(self, error: RoquetError) -> RoquetError:
        """The error; if a server was not reached, its hint says where the address was set."""
        from roquet.client.name_servers import NO_NAME_SERVER
        from roquet.remoting.codes import ResponseCode

        more: str | None = None
        if isinstance(error, ConnectFailed):
            more = self.origin if error.code == NO_NAME_SERVER else _OF_BROKER
        elif (
            isinstance(error, BrokerRefused)
            and error.response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            and "name server" in error.message.lower()
        ):
            more = f"That may be a broker, which has another port. {self.origin}"
        if more is None:
            return error
        found = copy(error)
        found.hint = " ".join(filter(None, [error.hint, more]))
        return found


def _tls_of(said: ClusterSettings) -> ClientTlsConfig | None:
    from roquet.remoting.tls import ClientTlsConfig

    if not said.uses_tls:
        return None
    return ClientTlsConfig(
        ca_file=_path(said.tls_ca),
        verify=said.tls_verify is not False,
        certificate_file=_path(said.tls_cert),
        key_file=_path(said.tls_key),
        key_password=said.tls_key_password or "",
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()


# -- what counts --------------------------------------------------------------------------------


def connection_of(
    said: ClusterSettings, *, context: str | None = None, environment: Mapping[str, str]
) -> Connection:
    """The connection that results from flags, contexts and the environment.

    Args:
        said: The values of the flags.
        context: The context that they name.
        environment: Variables of the environment.

    Raises:
        NotFound: There is no such context.
        ConfigError: The contexts cannot be read, or a secret is not where it should be.
    """
    layers = [("Their addresses were given with --namesrv.", said)]
    name = context or environment.get(_CONTEXT_VARIABLE) or None
    if context is not None or said.namesrv is None:
        contexts = load_contexts()
        name = name or contexts.current
        if name is not None:
            origin = f"Their addresses are those of the context {name}."
            layers.append((origin, _without_foreign_keys(contexts.get(name), said)))
    variables = {field: environment.get(key) or None for field, key in _ENVIRONMENT.items()}
    found = structs.replace(ClusterSettings(), **variables)
    layers.append(("Their addresses are those of NAMESRV_ADDR.", found))
    for _, part in reversed(layers[:-1]):
        found = structs.replace(found, **_said(part))
    secrets = {
        name: secret_of(text) for name in SECRETS if (text := getattr(found, name)) is not None
    }
    origin = next((text for text, part in layers if part.namesrv is not None), _NOBODY_SAID)
    return Connection(settings=structs.replace(found, **secrets), origin=origin)


_OF_BROKER = "The address of a broker is the one that it registered: its brokerIP1."
_NOBODY_SAID = (
    "No cluster was named: give --namesrv ADDRESSES, add a context (roquet context add), set "
    "NAMESRV_ADDR, or start a cluster here with roquet dev."
)


def _said(settings: ClusterSettings) -> dict[str, object]:
    return {name: value for name, value in structs.asdict(settings).items() if value is not None}


def _without_foreign_keys(context: ClusterSettings, said: ClusterSettings) -> ClusterSettings:
    """Keys belong together: another access key does not go with the context's secret."""
    if said.access_key is None:
        return context
    return structs.replace(context, **dict.fromkeys(_KEYS, None))


# -- flags --------------------------------------------------------------------------------------


class _Flag(Struct, frozen=True):
    """A flag, and the field of the settings that it sets."""

    names: tuple[str, ...]
    field: str
    help: str
    metavar: str | None = None
    value: bool | None = None


_FLAGS = (
    _Flag(("--context",), _CONTEXT, "The context to use instead of the current one.", "NAME"),
    _Flag(("--namespace",), "namespace", "The namespace of topics and groups.", "NAME"),
    _Flag(("--timeout",), "timeout_ms", "How long a request may take, such as 5s.", "SPAN"),
    _Flag(("--access-key",), "access_key", "The access key that signs requests.", "KEY"),
    _Flag(
        ("--secret-key",),
        "secret_key",
        "Its secret key: env:NAME, file:PATH, - to be prompted, or the secret itself, "
        "which other users of this machine can then see.",
        "SECRET",
    ),
    _Flag(
        ("--security-token",), "security_token", "A temporary token, in the same form.", "SECRET"
    ),
    _Flag(("--tls",), "tls", "Use TLS; each flag below implies it.", value=True),
    _Flag(("--no-tls",), "tls", "Use plain text.", value=False),
    _Flag(("--tls-ca",), "tls_ca", "The authorities of server certificates.", "FILE"),
    _Flag(("--tls-cert",), "tls_cert", "The client certificate.", "FILE"),
    _Flag(("--tls-key",), "tls_key", "Its private key.", "FILE"),
    _Flag(("--tls-key-password",), "tls_key_password", "The password of the key.", "SECRET"),
    _Flag(("--tls-no-verify",), "tls_verify", "Do not verify servers.", value=False),
)
_Callback: TypeAlias = Callable[[click.Context, click.Parameter, str | bool | None], None]
_NAMESRV_HELP = "Name servers, separated by semicolons."
_ASK = "-"


def _note(field: str, *, value: bool | None = None) -> _Callback:
    """A callback that records the value of a flag."""

    def callback(
        context: click.Context,
        parameter: click.Parameter,
        text: str | bool | None,  # noqa: FBT001 - click's callback signature
    ) -> None:
        if text in {None, False}:
            return
        noted: str | int | bool | None = text if value is None else value
        if isinstance(noted, str):
            noted = _checked(field, noted, context, parameter)
        _notes(context)[field] = noted

    return callback


def _checked(
    field: str, text: str, context: click.Context, parameter: click.Parameter
) -> str | int:
    if not text:
        message = "It is empty."
        raise click.BadParameter(message, context, parameter)
    if field == "timeout_ms":
        span_ms = parse_span_ms(text)
        if not span_ms:
            message = f"{text!r} is not a duration such as 5s or 500ms."
            raise click.BadParameter(message, context, parameter)
        return span_ms
    if field in SECRETS and text == _ASK and not context.resilient_parsing:
        asked: str = click.prompt(parameter.human_readable_name, hide_input=True, err=True)
        return asked
    return text


def _notes(context: click.Context) -> dict[str, object]:
    notes: dict[str, object] = context.meta.setdefault(_META_KEY, {})
    return notes


def complete_context(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Names of contexts, for shells."""
    try:
        names = load_contexts().contexts
    except (RoquetError, OSError):
        return []
    return [each for each in sorted(names) if each.startswith(incomplete)]


def _with_flags(
    command: Callable[P, T], *, hidden: bool, flags: tuple[_Flag, ...] = _FLAGS
) -> Callable[P, T]:
    for flag in reversed(flags):
        command = click.option(
            *flag.names,
            f"_{flag.field}_{flag.value}",
            metavar=flag.metavar,
            is_flag=flag.value is not None,
            expose_value=False,
            is_eager=True,
            hidden=hidden and flag.field != _CONTEXT,
            callback=_note(flag.field, value=flag.value),
            help=flag.help,
            shell_complete=complete_context if flag.field == _CONTEXT else None,
        )(command)
    return command


def global_connection_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add the flags to ``roquet`` itself; they apply to the sub-command."""
    return click.option(
        "-n",
        "--namesrv",
        metavar="ADDRESSES",
        expose_value=False,
        is_eager=True,
        callback=_note(_NAMESRV),
        help=_NAMESRV_HELP,
    )(_with_flags(command, hidden=False))


def connection_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add the flags to a command, which receives the result as ``connection``.

    Its help shows only the most common ones; that of ``roquet`` shows all.
    """
    return click.option(
        "-n",
        "--namesrv",
        "connection",
        metavar="ADDRESSES",
        callback=_resolve,
        help=_NAMESRV_HELP,
    )(_with_flags(command, hidden=True))


def settings_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add the flags except ``--context``; the command receives them as ``settings``."""
    return click.option(
        "-n",
        "--namesrv",
        "settings",
        metavar="ADDRESSES",
        callback=_gather,
        help=_NAMESRV_HELP,
    )(_with_flags(command, hidden=False, flags=_FLAGS[1:]))


def _gather(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> ClusterSettings:
    _note(_NAMESRV)(context, parameter, text)
    return settings_of_flags(context)


def _resolve(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Connection | None:
    _note(_NAMESRV)(context, parameter, text)
    return None if context.resilient_parsing else connection_of_flags(context)


def connection_of_flags(context: click.Context) -> Connection:
    """The connection that results from the flags of a command.

    Raises:
        NotFound: There is no such context.
        ConfigError: The contexts cannot be read, or a secret is not where it should be.
    """
    return connection_of(
        settings_of_flags(context),
        context=context_of_flags(context),
        environment=os.environ,
    )


def note_namesrv(context: click.Context, text: str) -> None:
    """Set the name servers from a flag of another name."""
    _notes(context)[_NAMESRV] = text


def settings_of_flags(context: click.Context) -> ClusterSettings:
    """The values of the flags of a command, and nothing else."""
    said = {name: value for name, value in _notes(context).items() if name != _CONTEXT}
    return structs.replace(ClusterSettings(), **said)


def context_of_flags(context: click.Context) -> str | None:
    """The context that the flags of a command name."""
    found = _notes(context).get(_CONTEXT)
    return found if isinstance(found, str) else None
