"""The settings of a broker: from its file, the environment and the command line.

Owns their order of precedence, and the checks that upstream makes at startup. The addresses of the
name servers come from:

.. code-block:: text

    -n flag  >  namesrvAddr in the file  >  $NAMESRV_ADDR  >  rocketmq.namesrv.addr

Everything else comes from a flag, else the file, else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from roquet.broker.config import BrokerConfig, replace
from roquet.broker.settings_table import IMPORTANT_KEYS, UNSUPPORTED, WITHOUT_EFFECT
from roquet.errors import ConfigError
from roquet.model.topic import TRACE_TOPIC, is_system_topic, topic_fault
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.client import split_address
from roquet.remoting.tls import ServerTlsConfig, TlsMode
from roquet.remoting.tls_settings import (
    TLS_CONFIG_FILE,
    TLS_UNSUPPORTED,
    TLS_WITHOUT_EFFECT,
    TlsSettings,
    read_tls_settings,
    shown_tls_settings,
)
from roquet.runtime.files import Files
from roquet.runtime.network import host_name, is_loopback
from roquet.runtime.settings import (
    COMMAND_LINE,
    Setting,
    SettingsTable,
    changed,
    from_command_line,
    keys_of,
    read_settings_file,
    to_properties,
)
from roquet.store.config import BrokerRole, MessageStoreConfig

__all__ = [
    "BROKER_SETTINGS",
    "BrokerSettings",
    "broker_properties",
    "load_broker_settings",
]

NAMESRV_ADDR_ENV = "NAMESRV_ADDR"
NAMESRV_ADDR_PROPERTY = "rocketmq.namesrv.addr"
_COMMIT_LOG_PATH = "storePathCommitLog"
_DEFAULT_NAME = "DEFAULT_BROKER"
_PORT_MAX = 65_535

BROKER_SETTINGS = SettingsTable(
    [BrokerConfig, MessageStoreConfig, TlsSettings],
    also=[TLS_CONFIG_FILE, NAMESRV_ADDR_PROPERTY, _COMMIT_LOG_PATH],
    without_effect=[*WITHOUT_EFFECT, *TLS_WITHOUT_EFFECT],
    unsupported=[*UNSUPPORTED, *TLS_UNSUPPORTED],
)
"""The known keys of a broker's file."""


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """All settings that a broker is started with.

    Attributes:
        config: Its own settings.
        store: The settings of its files.
        tls: The TLS settings.
        tls_settings: The same under upstream's keys.
        warnings: Unknown keys, and values that were adjusted.
        without_effect: Keys that have no effect.
    """

    config: BrokerConfig
    store: MessageStoreConfig
    tls: ServerTlsConfig
    tls_settings: TlsSettings
    warnings: list[ConfigError]
    without_effect: list[str]


def load_broker_settings(
    path: Path | None,
    overrides: Mapping[str, str],
    *,
    origin: str = COMMAND_LINE,
    environment: Mapping[str, str] | None = None,
    base: BrokerConfig | None = None,
    store_base: MessageStoreConfig | None = None,
    files: Files | None = None,
) -> BrokerSettings:
    """Load and validate the settings of a broker.

    Args:
        path: The file; ``None`` for the defaults.
        overrides: The values of flags, by upstream's keys.
        origin: The origin of those, for messages.
        environment: The environment variables.
        base: The defaults, if they differ from upstream's.
        store_base: The same for the store.
        files: The file system.

    Raises:
        ConfigError: The file cannot be read, or a value is invalid.
    """
    files = files or Files()
    settings = {} if path is None else read_settings_file(path, files)
    settings |= from_command_line(overrides, origin=origin)
    found = BROKER_SETTINGS.sort(_with_namesrv_address(settings, environment or {}))
    known, warnings = found.known, found.warnings
    config = changed(base or BrokerConfig(), _of(BrokerConfig, known))
    store = changed(store_base or MessageStoreConfig(), _of(MessageStoreConfig, known))
    tls = read_tls_settings(known, files)
    if not config.broker_name or ("brokerName" not in known and base is None):
        config = replace(config, broker_name=host_name() or _DEFAULT_NAME)
    config = replace(config, namesrv_address=_checked_namesrv_address(config, known))
    config = _with_role(config, store, known, warnings)
    config = _with_bind_address(config, known, warnings)
    _check_ports(config, store, known)
    _check_ha_port(store, tls, known)
    _check_trace_topic(config, known)
    _check_commit_log_path(config, known.get(_COMMIT_LOG_PATH))
    return BrokerSettings(
        config=config,
        store=store,
        tls=tls.to_config(),
        tls_settings=tls,
        warnings=warnings,
        without_effect=found.without_effect,
    )


def broker_properties(
    config: BrokerConfig,
    store: MessageStoreConfig,
    tls: TlsSettings | None = None,
    *,
    only_important: bool = False,
) -> dict[str, str]:
    """Return settings by upstream's keys, without secrets.

    Args:
        config: The broker's own settings.
        store: The settings of its files.
        tls: The TLS settings.
        only_important: Whether to return only those that upstream marks as important.
    """
    shown = to_properties(config) | to_properties(store)
    if tls is not None:
        shown |= shown_tls_settings(tls)
    if only_important:
        return {key: text for key, text in shown.items() if key in IMPORTANT_KEYS}
    return shown


def _of(kind: type[Struct], known: Mapping[str, Setting]) -> list[Setting]:
    return [known[key] for key in keys_of(kind) if key in known]


def _with_namesrv_address(
    settings: dict[str, Setting], environment: Mapping[str, str]
) -> dict[str, Setting]:
    key = "namesrvAddr"
    places = [
        settings.get(key),
        Setting(key, environment.get(NAMESRV_ADDR_ENV, ""), f"${NAMESRV_ADDR_ENV}"),
        settings.get(NAMESRV_ADDR_PROPERTY),
        Setting(key, environment.get(NAMESRV_ADDR_PROPERTY, ""), f"${NAMESRV_ADDR_PROPERTY}"),
    ]
    chosen = next((each for each in places if each is not None and each.text.strip()), None)
    if chosen is None:
        return settings
    return settings | {key: Setting(key, chosen.text.strip(), chosen.origin)}


def _origin(known: Mapping[str, Setting], *keys: str) -> str | None:
    told = dict.fromkeys(known[key].origin for key in keys if key in known)
    return "; ".join(each for each in told if each) or None


def _checked_namesrv_address(config: BrokerConfig, known: Mapping[str, Setting]) -> str:
    text = config.namesrv_address
    addresses = [each.strip() for each in text.split(";") if each.strip()]
    try:
        for address in addresses:
            split_address(address)
    except ConfigError:
        raise ConfigError(
            f"The Name Server Address[{text}] illegal, please set it as follows, "
            '"127.0.0.1:9876;192.168.0.1:9876"',
            code="namesrv_address",
            detail=_origin(known, "namesrvAddr"),
        ) from None
    return ";".join(addresses)


def _with_role(
    config: BrokerConfig,
    store: MessageStoreConfig,
    known: Mapping[str, Setting],
    warnings: list[ConfigError],
) -> BrokerConfig:
    """Reconcile role and id as upstream does: a master's id is 0, a slave's is not."""
    role = store.broker_role
    if role is BrokerRole.SLAVE and config.broker_id <= MASTER_ID:
        raise ConfigError(
            "Slave's brokerId must be > 0",
            code="broker_id",
            detail=_origin(known, "brokerRole", "brokerId"),
            hint="Give the slave a brokerId of 1 or more, or make it brokerRole=ASYNC_MASTER.",
        )
    if role is BrokerRole.SLAVE or config.broker_id == MASTER_ID:
        return config
    warnings.append(
        ConfigError(
            f"A master's brokerId is 0, not {config.broker_id}.",
            code="broker_id",
            detail=_origin(known, "brokerId"),
        )
    )
    return replace(config, broker_id=MASTER_ID)


def _with_bind_address(
    config: BrokerConfig, known: Mapping[str, Setting], warnings: list[ConfigError]
) -> BrokerConfig:
    """Listen where ``brokerIP1`` is reachable, unless a bind address is set.

    It may be another machine's address, so the ports listen on every address, as in upstream.
    """
    if "bindAddress" in known or not config.broker_ip1 or is_loopback(config.broker_ip1):
        return config
    everywhere = "::" if ":" in config.broker_ip1 else "0.0.0.0"  # noqa: S104 - asked for
    warnings.append(
        ConfigError(
            f"The ports listen on every address ({everywhere}), since brokerIP1 is "
            f"{config.broker_ip1}.",
            code="bind_address",
            detail=_origin(known, "brokerIP1"),
            hint="Set bindAddress to listen on one address only.",
        )
    )
    return replace(config, bind_address=everywhere)


def _check_ports(
    config: BrokerConfig, store: MessageStoreConfig, known: Mapping[str, Setting]
) -> None:
    if config.listen_port == _PORT_MAX and not store.ha_listen_port:
        raise ConfigError(
            f"listenPort={config.listen_port} leaves no room for the port of slaves.",
            detail=_origin(known, "listenPort"),
            hint="It is the one above, unless haListenPort is set.",
        )
    if config.listen_port in {1, 2}:
        raise ConfigError(
            f"listenPort={config.listen_port} leaves no room for the fast port.",
            detail=_origin(known, "listenPort"),
            hint="The fast port is two below: use 3 or more, or 0 for any free ports.",
        )


def _check_ha_port(
    store: MessageStoreConfig, tls: TlsSettings, known: Mapping[str, Setting]
) -> None:
    if store.ha_master_address:
        split_address(store.ha_master_address)
    is_closed = tls.mode is TlsMode.ENFORCING and not store.ha_listen_port
    if is_closed and store.broker_role is BrokerRole.SYNC_MASTER:
        raise ConfigError(
            "Slaves cannot reach this master: its port for them speaks no TLS, which is enforced.",
            code="ha_port",
            detail=_origin(known, "brokerRole", "tls.server.mode"),
            hint="Set haListenPort to open the port all the same; whoever reaches it may read "
            "every message.",
        )


def _check_trace_topic(config: BrokerConfig, known: Mapping[str, Setting]) -> None:
    """Refuse an invalid name, and one that the broker uses for another of its topics."""
    name = config.trace_topic_name
    if not config.trace_topic or name == TRACE_TOPIC:
        return
    fault = topic_fault(name)
    if fault is None and (
        is_system_topic(name) or name in {config.cluster_name, config.broker_name}
    ):
        fault = f"{name} is a system topic with another purpose"
    if fault is not None:
        raise ConfigError(
            f"msgTraceTopicName={name} cannot be the trace topic.",
            detail="; ".join(filter(None, [_origin(known, "msgTraceTopicName"), fault])),
            hint=f"Choose another name, or omit it for {TRACE_TOPIC}.",
        )


def _check_commit_log_path(config: BrokerConfig, asked: Setting | None) -> None:
    if asked is None or not asked.text:
        return
    expected = Path(config.store_root) / "commitlog"
    if Path(asked.text) != expected:
        raise ConfigError(
            f"{_COMMIT_LOG_PATH}={asked.text} is not supported.",
            code="config_unsupported",
            detail="; ".join(
                filter(None, [asked.origin, "the log is in the store's own directory"])
            ),
            hint=f"Omit it and mount the disk for the log at {expected}, "
            "or choose another storePathRootDir.",
        )
