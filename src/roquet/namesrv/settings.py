"""The settings of a name server, from its file and the command line.

Flags take precedence over the file, and the file over the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from roquet.errors import ConfigError
from roquet.namesrv.config import WITHOUT_EFFECT, NamesrvConfig
from roquet.remoting.tls import ServerTlsConfig
from roquet.remoting.tls_settings import (
    TLS_CONFIG_FILE,
    TLS_UNSUPPORTED,
    TLS_WITHOUT_EFFECT,
    TlsSettings,
    read_tls_settings,
    shown_tls_settings,
)
from roquet.runtime.files import Files
from roquet.runtime.settings import (
    SettingsTable,
    Unsupported,
    changed,
    from_command_line,
    keys_of,
    read_settings_file,
    to_properties,
)

__all__ = ["NAMESRV_SETTINGS", "NamesrvSettings", "load_namesrv_settings", "namesrv_properties"]

NAMESRV_SETTINGS = SettingsTable(
    [NamesrvConfig, TlsSettings],
    also=[TLS_CONFIG_FILE],
    without_effect=[*WITHOUT_EFFECT, *TLS_WITHOUT_EFFECT],
    unsupported=[
        *TLS_UNSUPPORTED,
        Unsupported(
            "enableControllerInNamesrv",
            frozenset({"false"}),
            "there is no controller, so no broker could change its role",
        ),
        Unsupported(
            "clusterTest",
            frozenset({"false"}),
            "missing routes are not requested from another cluster",
        ),
    ],
)
"""The known keys of a name server's configuration file."""


class NamesrvSettings(Struct, frozen=True, kw_only=True):
    """All settings of a name server.

    Attributes:
        config: Its own settings.
        tls: The TLS settings.
        tls_settings: The same under upstream's keys.
        warnings: Unknown keys.
        without_effect: Keys without effect.
    """

    config: NamesrvConfig
    tls: ServerTlsConfig
    tls_settings: TlsSettings
    warnings: list[ConfigError]
    without_effect: list[str]


def load_namesrv_settings(
    path: Path | None, overrides: Mapping[str, str], *, files: Files | None = None
) -> NamesrvSettings:
    """Read the settings of a name server.

    Args:
        path: The file; ``None`` for the defaults.
        overrides: The values of flags, by upstream's keys.
        files: The file system.

    Raises:
        ConfigError: The file cannot be read, or a value cannot be used.
    """
    files = files or Files()
    settings = {} if path is None else read_settings_file(path, files)
    found = NAMESRV_SETTINGS.sort(settings | from_command_line(overrides))
    own = [found.known[key] for key in keys_of(NamesrvConfig) if key in found.known]
    tls = read_tls_settings(found.known, files)
    return NamesrvSettings(
        config=changed(NamesrvConfig(), own),
        tls=tls.to_config(),
        tls_settings=tls,
        warnings=found.warnings,
        without_effect=found.without_effect,
    )


def namesrv_properties(settings: NamesrvSettings) -> dict[str, str]:
    """All settings by upstream's keys, without secrets."""
    return to_properties(settings.config) | shown_tls_settings(settings.tls_settings)
