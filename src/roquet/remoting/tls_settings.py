"""The TLS keys of a server's configuration file.

Owns :class:`TlsSettings`. Upstream takes these keys from Java's system properties or from the file
that ``tls.config.file`` names; here they are in the server's own file, or in that other one. The
server's own file takes precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from roquet.remoting.tls import ClientAuth, ServerTlsConfig, TlsMode
from roquet.runtime.files import Files
from roquet.runtime.settings import (
    IgnoredKeys,
    Setting,
    Unsupported,
    changed,
    keys_of,
    read_settings_file,
    to_properties,
)

__all__ = [
    "TLS_CONFIG_FILE",
    "TLS_UNSUPPORTED",
    "TLS_WITHOUT_EFFECT",
    "TlsSettings",
    "read_tls_settings",
    "shown_tls_settings",
]

TLS_CONFIG_FILE = "tls.config.file"
SECRET_KEYS = frozenset({"tls.server.keyPassword"})
_HIDDEN = "********"


class TlsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The TLS settings of a server, under upstream's keys; empty paths are unset."""

    mode: TlsMode = field(default=TlsMode.PERMISSIVE, name="tls.server.mode")
    certificate_file: str = field(default="", name="tls.server.certPath")
    key_file: str = field(default="", name="tls.server.keyPath")
    key_password: str = field(default="", name="tls.server.keyPassword")
    client_auth: ClientAuth = field(default=ClientAuth.NONE, name="tls.server.need.client.auth")
    client_ca_file: str = field(default="", name="tls.server.trustCertPath")

    def to_config(self) -> ServerTlsConfig:
        """Convert to the server's configuration."""
        return ServerTlsConfig(
            mode=self.mode,
            certificate_file=_path(self.certificate_file),
            key_file=_path(self.key_file),
            key_password=self.key_password,
            client_auth=self.client_auth,
            client_ca_file=_path(self.client_ca_file),
        )


TLS_WITHOUT_EFFECT = (
    IgnoredKeys(
        "certificates are never generated, and a required client certificate is always verified",
        frozenset({"tls.server.authClient", "tls.test.mode.enable"}),
    ),
    IgnoredKeys(
        "the server connects to its peers in plain text",
        frozenset(
            {
                "tls.client.authServer",
                "tls.client.certPath",
                "tls.client.keyPassword",
                "tls.client.keyPath",
                "tls.client.trustCertPath",
            }
        ),
    ),
)
"""Keys without effect."""

TLS_UNSUPPORTED = (
    Unsupported(
        "tls.enable",
        frozenset({"false"}),
        "the server would connect to its peers in plain text all the same",
    ),
    Unsupported(
        "useTLS",
        frozenset({"false"}),
        "the server would connect to its peers in plain text all the same",
    ),
)
"""Keys of which only these values are supported."""


def read_tls_settings(settings: Mapping[str, Setting], files: Files) -> TlsSettings:
    """Read the TLS settings among others, and those of the file that they name.

    Raises:
        ConfigError: A value cannot be used, or the other file cannot be read.
    """
    keys = keys_of(TlsSettings)
    named = settings.get(TLS_CONFIG_FILE)
    found: dict[str, Setting] = {}
    if named is not None and named.text:
        found |= read_settings_file(Path(named.text), files)
    found |= settings
    return changed(TlsSettings(), [found[key] for key in keys if key in found])


def shown_tls_settings(settings: TlsSettings) -> dict[str, str]:
    """All TLS settings by key, without secrets."""
    return {
        key: _HIDDEN if key in SECRET_KEYS and text else text
        for key, text in to_properties(settings).items()
    }


def _path(text: str) -> Path | None:
    return Path(text) if text else None
