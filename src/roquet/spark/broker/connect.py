"""The connection options that the source and the sink share.

Owns the names of these options, and turns them into the settings of a client.
"""

from __future__ import annotations

from pathlib import Path

from roquet.client.options import ClientOptions
from roquet.errors import ConfigError, SparkOptionError
from roquet.remoting.tls import ClientTlsConfig, client_context
from roquet.spark.options import Options

__all__ = ["CONNECT_ALIASES", "CONNECT_OPTIONS", "client_options", "connect_options"]

CONNECT_OPTIONS = (
    "namesrv",
    "namespace",
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsCaFile",
    "tlsCertFile",
    "tlsKeyFile",
    "tlsKeyPassword",
    "tlsVerify",
    "requestTimeoutMs",
)

CONNECT_ALIASES = {"nameServer": "namesrv"}

_REQUEST_TIMEOUT_MS = 3_000


def client_options(options: Options) -> ClientOptions:
    """The settings of the client.

    Raises:
        SparkOptionError: An option is missing, or its value cannot be used.
    """
    made = ClientOptions(
        namesrv=options.required("namesrv", "Write host:port, several with semicolons between."),
        namespace=options.text("namespace", "") or "",
        access_key=options.text("accessKey", "") or "",
        secret_key=options.text("secretKey", "") or "",
        security_token=options.text("securityToken", "") or "",
        tls=_tls(options),
        request_timeout_ms=options.integer("requestTimeoutMs", _REQUEST_TIMEOUT_MS, minimum=1)
        or _REQUEST_TIMEOUT_MS,
    )
    try:
        made.check()
    except ConfigError as error:
        raise SparkOptionError(error.message, detail=error.detail, hint=error.hint) from None
    return made


def _tls(options: Options) -> ClientTlsConfig | None:
    if not options.boolean("tls", default=False):
        extra = [name for name in CONNECT_OPTIONS if name.startswith("tls") and name in options]
        extra = [name for name in extra if name != "tls"]
        if extra:
            raise SparkOptionError(
                f"The option {extra[0]!r} of {options.source} is given, but TLS is off.",
                hint="Set tls to true.",
            )
        return None
    made = ClientTlsConfig(
        ca_file=_path(options, "tlsCaFile"),
        verify=options.boolean("tlsVerify", default=True),
        certificate_file=_path(options, "tlsCertFile"),
        key_file=_path(options, "tlsKeyFile"),
        key_password=options.text("tlsKeyPassword", "") or "",
    )
    try:
        client_context(made)
    except ConfigError as error:
        hint = error.hint or "The file must be there on the driver and on every executor."
        raise SparkOptionError(error.message, detail=error.detail, hint=hint) from None
    return made


def _path(options: Options, name: str) -> Path | None:
    text = options.text(name)
    return None if text is None else Path(text)


def connect_options(client: ClientOptions) -> dict[str, str]:
    """The settings of a client as options, the inverse of :func:`client_options`.

    Example:
        >>> connect_options(ClientOptions(namesrv="127.0.0.1:9876", namespace="shop"))
        {'namesrv': '127.0.0.1:9876', 'namespace': 'shop', 'requestTimeoutMs': '3000'}
    """
    tls = client.tls
    made: dict[str, str | Path | None] = {
        "namesrv": ";".join(client.namesrv_addresses),
        "namespace": client.namespace,
        "accessKey": client.access_key,
        "secretKey": client.secret_key,
        "securityToken": client.security_token,
        "requestTimeoutMs": str(client.request_timeout_ms),
    }
    if tls is not None:
        made |= {
            "tls": "true",
            "tlsCaFile": tls.ca_file,
            "tlsCertFile": tls.certificate_file,
            "tlsKeyFile": tls.key_file,
            "tlsKeyPassword": tls.key_password,
            "tlsVerify": "true" if tls.verify else "false",
        }
    return {name: str(value) for name, value in made.items() if value}
