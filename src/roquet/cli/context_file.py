"""Contexts: named clusters, and how to reach each of them.

Owns their file, ``contexts.json`` in the folder ``roquet`` of ``$XDG_CONFIG_HOME`` or
``~/.config``. Only its owner can read it. A secret in it is either the secret itself or its
location: ``env:NAME`` for a variable of the environment, ``file:PATH`` for the first line of a
file.

.. code-block:: text

    {"schema": 1, "current": "prod",
     "contexts": {"prod": {"namesrv": "10.0.0.1:9876", "accessKey": "ops",
                           "secretKey": "file:/run/secrets/mq", "tls": true}}}
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from roquet.errors import ConfigError, NotFound
from roquet.runtime.private_file import PrivateFile

__all__ = [
    "HIDDEN",
    "SECRETS",
    "ClusterSettings",
    "Contexts",
    "change_contexts",
    "check_context_name",
    "contexts_path",
    "load_contexts",
    "nearest",
    "secret_of",
    "shown_secret",
    "with_absolute_file",
]

SCHEMA = 1
HIDDEN = "***"
SECRETS: Final = ("secret_key", "security_token", "tls_key_password")
"""The fields of :class:`ClusterSettings` that hold secrets, or their locations."""

_NAME = re.compile(r"(?a)\w[\w.-]{0,62}")
_ENV = "env:"
_FILE = "file:"


class ClusterSettings(
    Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How to reach a cluster; ``None`` is unset.

    Attributes:
        namesrv: The name servers, separated by semicolons.
        namespace: The namespace of topics and groups.
        access_key: The access key that signs requests.
        secret_key: Its secret key, or the location.
        security_token: A temporary token, or its location.
        tls: Whether to use TLS.
        tls_ca: The authorities of server certificates, PEM.
        tls_cert: The client certificate, PEM.
        tls_key: Its private key, PEM.
        tls_key_password: The password of the key, or its location.
        tls_verify: Whether to verify servers.
        timeout_ms: How long a request may take.
    """

    namesrv: str | None = None
    namespace: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    security_token: str | None = None
    tls: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_key_password: str | None = None
    tls_verify: bool | None = None
    timeout_ms: int | None = None

    @property
    def uses_tls(self) -> bool:
        """Whether to use TLS, which any TLS setting implies."""
        named = (self.tls_ca, self.tls_cert, self.tls_key, self.tls_key_password, self.tls_verify)
        return self.tls if self.tls is not None else any(each is not None for each in named)

    def shown(self) -> ClusterSettings:
        """The same without secrets."""
        return msgspec.structs.replace(
            self, **{name: shown_secret(getattr(self, name)) for name in SECRETS}
        )

    def __repr__(self) -> str:
        values = ((name, getattr(self.shown(), name)) for name in self.__struct_fields__)
        said = ", ".join(f"{name}={value!r}" for name, value in values if value is not None)
        return f"ClusterSettings({said})"


class Contexts(Struct, kw_only=True, forbid_unknown_fields=True):
    """All contexts.

    Attributes:
        current: The name of the default context.
        contexts: The contexts by name.
    """

    schema: int = SCHEMA
    current: str | None = None
    contexts: dict[str, ClusterSettings] = field(default_factory=dict)

    def get(self, name: str) -> ClusterSettings:
        """A context by name.

        Raises:
            NotFound: There is no such context.
        """
        found = self.contexts.get(name)
        if found is None:
            raise NotFound(
                f"There is no context {name}",
                detail=f"known: {', '.join(sorted(self.contexts)) or 'none'}",
                hint=nearest(name, self.contexts)
                or "Create it with: roquet context add NAME --namesrv ADDRESSES",
            )
        return found


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint for a mistyped name; ``None`` if no known name is similar.

    Example:
        >>> nearest("Ordrs", ["Orders", "Bills"])
        'Did you mean Orders?'
    """
    by_small = {each.casefold(): each for each in known}
    found = get_close_matches(name.casefold(), by_small, n=1, cutoff=0.6)
    return f"Did you mean {by_small[found[0]]}?" if found else None


def check_context_name(name: str) -> None:
    """Refuse a name that no context can have.

    Raises:
        ConfigError: It has other characters, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid context name",
            hint="Up to 63 letters, digits, _, - and dots; the first is a letter, a digit or _.",
        )


# -- the file -----------------------------------------------------------------------------------


def contexts_path() -> Path:
    """The path of the contexts file."""
    root = os.environ.get("XDG_CONFIG_HOME", "")
    # By the specification, a relative path is ignored.
    folder = Path(root) if Path(root).is_absolute() else Path.home() / ".config"
    return folder / "roquet" / "contexts.json"


def load_contexts() -> Contexts:
    """Read the contexts.

    Raises:
        ConfigError: The file is not valid.
        OSError: It cannot be read.
    """
    return _read(PrivateFile(contexts_path()).read())


def change_contexts(change: Callable[[Contexts], None]) -> Contexts:
    """Change the contexts and return them; if ``change`` raises, nothing changes.

    Raises:
        ConfigError: The file is not valid.
        OSError: It cannot be read or written.
    """
    contexts = Contexts()

    def make(data: bytes | None) -> bytes:
        nonlocal contexts
        contexts = _read(data)
        change(contexts)
        return msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n"

    PrivateFile(contexts_path()).change(make)
    return contexts


def _read(data: bytes | None) -> Contexts:
    if data is None:
        return Contexts()
    try:
        found = msgspec.json.decode(data, type=Contexts)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            "The contexts file cannot be parsed",
            detail=f"{contexts_path()}: {error}",
            hint="Fix it, or delete it and add the contexts again.",
        ) from error
    if found.schema != SCHEMA:
        raise ConfigError(
            "The contexts file was written by another version",
            detail=f"{contexts_path()}: schema {found.schema}, known is {SCHEMA}",
        )
    return found


# -- secrets ------------------------------------------------------------------------------------


def secret_of(text: str) -> str:
    """Resolve a secret, given as itself or as its location.

    Raises:
        ConfigError: There is no secret.
    """
    if text.startswith(_ENV):
        name = text.removeprefix(_ENV)
        found = os.environ.get(name, "")
        if not found:
            raise ConfigError(f"The variable {name} holds no secret", hint="Set it, and export it.")
        return found
    if text.startswith(_FILE):
        path = Path(text.removeprefix(_FILE)).expanduser()
        try:
            content = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(
                "A file with a secret cannot be read", detail=f"{path}: {reason}"
            ) from error
        found = content.splitlines()[0].strip() if content.strip() else ""
        if not found:
            raise ConfigError(f"{path} holds no secret", hint="It is the first line of the file.")
        return found
    return text


def with_absolute_file(text: str) -> str:
    """The same with an absolute path, for use from another folder."""
    if not text.startswith(_FILE):
        return text
    return f"{_FILE}{Path(text.removeprefix(_FILE)).expanduser().absolute()}"


def shown_secret(text: str | None) -> str | None:
    """A secret in printable form: its location, or stars."""
    if text is None or text.startswith((_ENV, _FILE)):
        return text
    return HIDDEN
