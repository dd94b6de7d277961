"""TLS: modes, certificates, and when they are reloaded.

Owns the TLS contexts of servers and clients. A server has one port for both kinds of peers: the
first byte of a TLS connection is 0x16, and no frame of at most 16 MiB starts with it.

=============== ========================= ==========================
mode            first byte 0x16           any other first byte
=============== ========================= ==========================
``disabled``    a bad frame, closed       plain text
``permissive``  TLS                       plain text
``enforcing``   TLS                       closed
=============== ========================= ==========================

TLS is version 1.2 or later, without renegotiation. Upstream makes a self-signed certificate if none
is configured, and its clients then trust anything; here ``permissive`` without a certificate is
plain text only, and clients verify by default.
"""

from __future__ import annotations

import logging
import ssl
from enum import Enum
from pathlib import Path

import msgspec
from msgspec import Struct

from roquet.errors import ConfigError
from roquet.runtime.files import Files

__all__ = [
    "TLS_FIRST_BYTE",
    "ClientAuth",
    "ClientTlsConfig",
    "ServerTls",
    "ServerTlsConfig",
    "TlsMode",
    "client_context",
]

log = logging.getLogger(__name__)

TLS_FIRST_BYTE = 0x16
"""The content type of a handshake record."""


class TlsMode(Enum):
    """Whether a server's peers may, or must, speak TLS."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether a server asks its peers for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class ServerTlsConfig(Struct, frozen=True, kw_only=True):
    """The TLS settings of a server.

    Attributes:
        mode: Whether peers may, or must, speak TLS.
        certificate_file: The certificate chain, PEM.
        key_file: Its private key, PEM; by default in the same file.
        key_password: The password of the key.
        client_auth: Whether peers must present a certificate.
        client_ca_file: The authorities of client certificates, PEM.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    client_ca_file: Path | None = None

    def not_enforced(self) -> ServerTlsConfig:
        """The same settings, but plain text is allowed."""
        if self.mode is TlsMode.ENFORCING:
            return msgspec.structs.replace(self, mode=TlsMode.PERMISSIVE)
        return self


class ClientTlsConfig(Struct, frozen=True, kw_only=True):
    """The TLS settings of a client.

    Attributes:
        ca_file: The authorities of server certificates, PEM; by default the system's list.
        verify: Whether to verify the certificates of servers.
        certificate_file: The certificate chain to present, PEM.
        key_file: Its private key, PEM; by default in the same file.
        key_password: The password of the key.

    Example:
        tls = ClientTlsConfig(ca_file=Path("ca.pem"))
        options = ClientOptions(namesrv="10.0.0.1:9876", tls=tls)
    """

    ca_file: Path | None = None
    verify: bool = True
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: str = ""


class ServerTls:
    """The TLS context of a server, reloaded when its files change.

    Args:
        config: The settings.
        files: The file system.

    Raises:
        ConfigError: The settings contradict each other, or a file cannot be used.
    """

    def __init__(self, config: ServerTlsConfig, files: Files) -> None:
        self.mode = config.mode
        self._config = config
        self._files = files
        self._watched = [
            path
            for path in (config.certificate_file, config.key_file, config.client_ca_file)
            if path is not None
        ]
        if config.mode is not TlsMode.DISABLED and config.certificate_file is None:
            if config.mode is TlsMode.ENFORCING:
                raise ConfigError(
                    "TLS is enforced, but there is no certificate",
                    hint="Name a certificate and its key, or choose another TLS mode.",
                )
            self.mode = TlsMode.DISABLED
        self._stamps: list[tuple[int, int]] | None = None
        self.context: ssl.SSLContext | None = None
        """What new connections use; ``None`` when TLS is disabled."""
        if self.mode is not TlsMode.DISABLED:
            self._stamps = self._read_stamps()
            self.context = self._load()

    def reload_if_changed(self) -> bool:
        """Use the new content of changed files for new connections, if it is valid.

        A certificate whose key was not yet replaced does not load; the old pair stays in use until
        the next change.

        Returns:
            Whether there is a new context.
        """
        if self.context is None:
            return False
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        try:
            self.context = self._load()
        except ConfigError as error:
            log.warning("The old certificate stays in use: %s (%s)", error.message, error.detail)
            return False
        log.info("Reloaded the certificate: %s", self._config.certificate_file)
        return True

    def _read_stamps(self) -> list[tuple[int, int]] | None:
        try:
            return [
                (self._files.modified_ms(path), self._files.size_bytes(path))
                for path in self._watched
            ]
        except OSError:
            return None

    def _load(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        if config.certificate_file is not None:
            _load_pair(context, config.certificate_file, config.key_file, config.key_password)
        if config.client_ca_file is not None:
            _load_authorities(context, config.client_ca_file)
        elif config.client_auth is not ClientAuth.NONE:
            raise ConfigError(
                "Client certificates are requested, but no authority is trusted",
                hint="Name the file with the authorities of client certificates.",
            )
        context.verify_mode = _VERIFY_MODES[config.client_auth]
        return context


def client_context(config: ClientTlsConfig) -> ssl.SSLContext:
    """The TLS context of a client.

    Raises:
        ConfigError: A file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if config.ca_file is not None:
        _load_authorities(context, config.ca_file)
    elif config.verify:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate_file is not None:
        _load_pair(context, config.certificate_file, config.key_file, config.key_password)
    return context


def _load_pair(
    context: ssl.SSLContext, certificate_file: Path, key_file: Path | None, password: str
) -> None:
    # Without a password OpenSSL would prompt for one on the terminal.
    try:
        context.load_cert_chain(certificate_file, key_file, password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            "The certificate or its key cannot be used",
            detail=f"{certificate_file}, {key_file or 'key in the same file'}: {error}",
            hint="Both must be PEM files, and the key must belong to the certificate.",
        ) from None


def _load_authorities(context: ssl.SSLContext, ca_file: Path) -> None:
    try:
        context.load_verify_locations(ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            "The file of certificate authorities cannot be used", detail=f"{ca_file}: {error}"
        ) from None
