"""Settings of the name server, under RocketMQ's own keys.

Owns :class:`NamesrvConfig`, the list of settings that a request may change, and
:class:`Configuration`, which holds the settings in force.

Invariants:

* A request changes only the settings of :data:`DYNAMIC_KEYS`: switches and a number of seconds,
  never a path, an address or a name (CVE-2023-37582 was a path). Upstream has a deny list instead.
* A change is applied as a whole or not at all, and takes effect once it is in the file.
* The file that stores changes is fixed at the start.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from msgspec import Struct, field

from roquet.errors import ConfigError
from roquet.model.properties_text import format_properties, parse_properties
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.settings import (
    IgnoredKeys,
    NonNegative,
    Port,
    Positive,
    PositiveMs,
    Setting,
    SettingsTable,
    changed,
    keys_of,
    to_properties,
)

__all__ = [
    "DYNAMIC_KEYS",
    "KEYS_WITHOUT_EFFECT",
    "WITHOUT_EFFECT",
    "Configuration",
    "NamesrvConfig",
]

UPDATE_REFUSED = "config_update_refused"
"""The ``code`` of an error about a setting that no request may change."""


def _in_home(name: str) -> str:
    return str(Path.home() / "namesrv" / name)


class NamesrvConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name server's settings; defaults are upstream's, except that only loopback is bound.

    Attributes:
        bind_address: Where the port listens.
        order_message: Whether routes carry the queues of ordered topics.
        return_order_topic_config_to_broker: Whether brokers that register get them too.
        scan_not_active_broker_interval_ms: How often to look for silent brokers.
        support_acting_master: Whether a route may list a slave as master.
        all_topic_list: Whether listing all topics is allowed.
        topic_list: Whether listing the topics of a cluster or unit is allowed.
        notify_min_broker_id_changed: Whether brokers are notified of a new smallest id of their
            name.
        need_wait_for_service: Whether routes are refused for some time after the start, while
            brokers are still registering.
        wait_seconds_for_service: That time.
        delete_topic_with_broker_registration: Whether a topic that a broker no longer registers
            is dropped for that broker.
        brokers_max: How many brokers may be registered; Roquet's own.
        topic_routes_max: How many topics may be registered, counted once per broker name; Roquet's
            own.
        config_black_list: Further keys that no request may change, separated by semicolons.
    """

    rocketmq_home: str = field(default="", name="rocketmqHome")
    kv_config_path: str = field(
        default_factory=lambda: _in_home("kvConfig.json"), name="kvConfigPath"
    )
    config_store_path: str = field(
        default_factory=lambda: _in_home("namesrv.properties"), name="configStorePath"
    )
    bind_address: str = field(default="127.0.0.1", name="bindAddress")
    listen_port: Port = field(default=9876, name="listenPort")
    channel_idle_seconds_max: Positive = field(default=120, name="serverChannelMaxIdleTimeSeconds")
    connections_max: Positive = field(default=20_000, name="maxConnections")
    order_message: bool = field(default=False, name="orderMessageEnable")
    return_order_topic_config_to_broker: bool = field(
        default=True, name="returnOrderTopicConfigToBroker"
    )
    scan_not_active_broker_interval_ms: PositiveMs = field(
        default=5000, name="scanNotActiveBrokerInterval"
    )
    support_acting_master: bool = field(default=False, name="supportActingMaster")
    all_topic_list: bool = field(default=True, name="enableAllTopicList")
    topic_list: bool = field(default=True, name="enableTopicList")
    notify_min_broker_id_changed: bool = field(default=False, name="notifyMinBrokerIdChanged")
    need_wait_for_service: bool = field(default=False, name="needWaitForService")
    wait_seconds_for_service: NonNegative = field(default=45, name="waitSecondsForService")
    delete_topic_with_broker_registration: bool = field(
        default=False, name="deleteTopicWithBrokerRegistration"
    )
    brokers_max: Positive = field(default=4096, name="maxBrokers")
    topic_routes_max: Positive = field(default=500_000, name="maxTopicRoutes")
    config_black_list: str = field(
        default="configBlackList;configStorePath;kvConfigPath", name="configBlackList"
    )

    @classmethod
    def in_folder(cls, folder: Path, *, bind_address: str, listen_port: int) -> NamesrvConfig:
        """The settings of a name server that keeps all its files in one folder."""
        return cls(
            bind_address=bind_address,
            listen_port=listen_port,
            kv_config_path=str(folder / "kvConfig.json"),
            config_store_path=str(folder / "namesrv.properties"),
        )


DYNAMIC_KEYS = frozenset(
    {
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "supportActingMaster",
        "enableAllTopicList",
        "enableTopicList",
        "notifyMinBrokerIdChanged",
        "needWaitForService",
        "waitSecondsForService",
        "deleteTopicWithBrokerRegistration",
    }
)
"""The keys that a request may change."""

WITHOUT_EFFECT = (
    IgnoredKeys(
        "there is one event loop and no thread pools",
        frozenset(
            {
                "clientRequestThreadPoolNums",
                "clientRequestThreadPoolQueueCapacity",
                "defaultThreadPoolNums",
                "defaultThreadPoolQueueCapacity",
                "serverAsyncSemaphoreValue",
                "serverCallbackExecutorThreads",
                "serverOnewaySemaphoreValue",
                "serverSelectorThreads",
                "serverWorkerThreads",
                "unRegisterBrokerQueueCapacity",
            }
        ),
    ),
    IgnoredKeys(
        "Netty's own",
        frozenset(
            {
                "enableShutdownGracefully",
                "serverNettyWorkerGroupEnable",
                "serverPooledByteBufAllocatorEnable",
                "serverSocketBacklog",
                "serverSocketRcvBufSize",
                "serverSocketSndBufSize",
                "shutdownWaitTimeSeconds",
                "useEpollNativeSelector",
                "writeBufferHighWaterMark",
                "writeBufferLowWaterMark",
            }
        ),
    ),
    IgnoredKeys(
        "there is no name server that queries another cluster or contains a controller",
        frozenset({"clusterTest", "enableControllerInNamesrv", "productEnvName"}),
    ),
)
"""Upstream's keys that a file may have, but that have no effect here."""

KEYS_WITHOUT_EFFECT = frozenset(key for group in WITHOUT_EFFECT for key in group.keys)

_TABLE = SettingsTable([NamesrvConfig], without_effect=WITHOUT_EFFECT)
_FIELDS = keys_of(NamesrvConfig)
_ALWAYS_BLACK_LISTED = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")


def _strange_key(key: str) -> ConfigError:
    if key in KEYS_WITHOUT_EFFECT:
        return ConfigError(f"{key} has no effect here.", code=UPDATE_REFUSED)
    return _TABLE.unknown(Setting(key, ""))


def _with_changes(config: NamesrvConfig, changes: dict[str, str], origin: str) -> NamesrvConfig:
    return changed(config, [Setting(key, text, origin) for key, text in changes.items()])


class Configuration:
    """The settings in force, and the changes made by requests.

    Args:
        base: The settings from the command line and the operator's file.
        file: Where changes are stored, decoded by :func:`parse_properties`; none: in memory only.

    Attributes:
        current: The settings in force.
    """

    def __init__(self, base: NamesrvConfig, file: ConfigFile[dict[str, str]] | None = None) -> None:
        self.current = base
        self._base = base
        self._file = file
        self._changes: dict[str, str] = {}
        self._updating = asyncio.Lock()

    def load(self) -> ConfigError | None:
        """Load the stored changes.

        Returns:
            The problem with the file, if its backup was used.

        Raises:
            ConfigError: Neither the file nor its backup can be used, or a value is invalid.
        """
        loaded = None if self._file is None else self._file.load()
        if loaded is None:
            return None
        changes = {key: text.strip() for key, text in loaded.value.items() if key in DYNAMIC_KEYS}
        self.current = _with_changes(self._base, changes, self._base.config_store_path)
        self._changes = changes
        return loaded.problem

    async def update(self, text: str) -> None:
        """Apply a request's changes; requests take effect in the order of the calls.

        Raises:
            ConfigError: A key is unknown or may not be changed, or a value is invalid; the code
                tells which. Nothing was changed.
            StoreError: The change could not be saved. Nothing was changed.
        """
        asked = parse_properties(text)
        for key in asked:
            self._check_dynamic(key)
        async with self._updating:
            changes = self._changes | {key: value.strip() for key, value in asked.items()}
            current = _with_changes(self._base, changes, "")
            if self._file is not None and changes:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self._file.save, format_properties(changes))
            self._changes = changes
            self.current = current

    def listens_on(self, port: int) -> None:
        """Set the actual port, which is known only now if any free one was requested."""
        self._base = msgspec.structs.replace(self._base, listen_port=port)
        self.current = msgspec.structs.replace(self.current, listen_port=port)

    def text(self) -> str:
        """All settings, as in upstream's response."""
        return format_properties(to_properties(self.current))

    def _check_dynamic(self, key: str) -> None:
        black_list = {*_ALWAYS_BLACK_LISTED, *self._base.config_black_list.split(";")}
        if key in black_list:
            raise ConfigError(
                "Can not update config in black list.", code=UPDATE_REFUSED, detail=key
            )
        if key not in _FIELDS:
            raise _strange_key(key)
        if key not in DYNAMIC_KEYS:
            raise ConfigError(
                f"{key} cannot be changed by a request.",
                code=UPDATE_REFUSED,
                hint="Change it in the configuration file and restart the name server.",
            )
