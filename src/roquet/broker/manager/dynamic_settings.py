"""Settings that an administrator may change while the broker runs.

Owns the list of them, :data:`DYNAMIC_KEYS`, and the file ``<store root>/config/broker.properties``,
which holds the changes and overrides the broker's own file at the next start.

Invariants:

* Nothing outside the list changes, whoever requests it: no path, no address, no class to load, no
  limit that applies to data on disk, nothing that decides when a message counts as stored.
* Every setting on the list is read each time it is used, so a change takes effect at once. A
  setting that is read only at startup is not on the list.
* A change is all or nothing: it is validated as at startup, then written to the file, then applied.

Settings are frozen everywhere else; only here are they changed in place, because all components of
the broker share the two structs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import config_path
from roquet.broker.settings import BROKER_SETTINGS
from roquet.errors import ConfigError
from roquet.model.data_version import DataVersion
from roquet.model.properties_text import format_properties, parse_properties
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files
from roquet.runtime.settings import Setting, changed, check_supported, keys_of, shown_value
from roquet.store.config import MessageStoreConfig

__all__ = ["BLACK_LIST", "DYNAMIC_KEYS", "DynamicSettings", "NotDynamic", "SettingsUpdate"]

log = logging.getLogger(__name__)

_FILE_NAME = "broker.properties"
_HEAD = "# Settings that administrators changed while the broker ran.\n"

_BROKER_KEYS = (
    "brokerPermission",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "enableCreateSysGroup",
    "enableMixedMessageType",
    "storeReplyMessageEnable",
    "validateSystemTopicWhenUpdateTopic",
    "litePullMessageEnable",
    "enablePropertyFilter",
    "filterSupportRetry",
    "filterDataCleanTimeSpan",
    "useServerSideResetOffset",
    "consumerOffsetUpdateVersionStep",
    "notifyConsumerIdsChangedEnable",
    "channelExpiredTimeout",
    "subscriptionExpiredTimeout",
    "forceRegister",
    "compressedRegister",
    "registerBrokerTimeoutMills",
)
_STORE_KEYS = (
    "deleteWhen",
    "fileReservedTime",
    "cleanResourceInterval",
    "deleteCommitLogFilesInterval",
    "deleteFileBatchMax",
    "cleanFileForciblyEnable",
    "diskMaxUsedSpaceRatio",
    "diskSpaceCleanForciblyRatio",
    "diskSpaceWarningLevelRatio",
    "maxMsgsNumBatch",
    "osPageCacheBusyTimeOutMills",
)

DYNAMIC_KEYS = frozenset({*_BROKER_KEYS, *_STORE_KEYS})
"""Upstream's keys of the settings that may be changed."""

_NAMES = {**keys_of(BrokerConfig), **keys_of(MessageStoreConfig)}

BLACK_LIST = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""Keys that upstream refuses; they have no effect here, and are refused as well."""


class NotDynamic(ConfigError):
    """A setting that cannot be changed while the broker runs."""

    default_code = "config_not_dynamic"


class SettingsUpdate(NamedTuple):
    """The result of one request.

    Attributes:
        changed: Keys whose values changed.
        without_effect: Keys that have no effect in this version.
    """

    changed: list[str]
    without_effect: list[str]


class _Change(NamedTuple):
    """Validated values of one struct, by our names."""

    target: Struct
    values: dict[str, object]


class DynamicSettings:
    """Changes settings.

    Args:
        config: The broker's settings, changed in place.
        store_config: The settings of its files, changed in place.
        file: The file of changes; see :meth:`at`.
        clock: The time.

    Attributes:
        data_version: Increases with every change.
        changed: Called with the keys after every change.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        file: ConfigFile[dict[str, str]],
        clock: Clock,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._file = file
        self._clock = clock
        self._kept: dict[str, str] = {}
        self._updating = asyncio.Lock()
        self.data_version = DataVersion(timestamp_ms=clock.now_ms())
        self.changed: list[Callable[[frozenset[str]], None]] = []

    @classmethod
    def at(
        cls, config: BrokerConfig, store_config: MessageStoreConfig, files: Files, clock: Clock
    ) -> DynamicSettings:
        """Return settings whose changes are kept in the store of ``config``."""
        path = config_path(config.store_root, _FILE_NAME)
        file = ConfigFile(path, files, decode=parse_properties)
        return cls(config, store_config, file, clock)

    def load(self) -> ConfigError | None:
        """Apply the changes of earlier runs; call it before the settings are used.

        A change that is no longer allowed, or no longer valid, is logged and skipped.

        Returns:
            The fault of the file, if its backup was used.

        Raises:
            ConfigError: Neither file is usable.
            StoreError: They cannot be read.
        """
        loaded = self._file.load()
        if loaded is None:
            return None
        for key, text in loaded.value.items():
            try:
                _check_dynamic([key])
                self._make(self._checked({key: text}))
            except ConfigError as error:
                log.warning("%s: %s", loaded.path, error)
            else:
                self._kept[key] = text
                log.info("%s=%s, set by an administrator", key, text)
        return loaded.problem

    async def update(self, settings: Mapping[str, str]) -> SettingsUpdate:
        """Change settings; updates take effect in the order of the calls.

        Args:
            settings: Values as written in a file, by upstream's keys.

        Raises:
            NotDynamic: One of them may not be changed, or requires a missing feature; nothing was
                changed.
            ConfigError: A value is invalid; nothing was changed.
            StoreError: The change could not be written; nothing was changed.
        """
        without_effect = [key for key, text in settings.items() if _is_without_effect(key, text)]
        asked = {key: text.strip() for key, text in settings.items() if key not in without_effect}
        _check_dynamic(asked)
        if not asked:
            return SettingsUpdate([], without_effect)
        async with self._updating:
            changes = self._checked(asked)
            kept = self._kept | asked
            text = _HEAD + format_properties(kept)
            await asyncio.get_running_loop().run_in_executor(None, self._file.save, text)
            self._kept = kept
            names = self._make(changes)
        self.data_version.counter += 1
        self.data_version.timestamp_ms = self._clock.now_ms()
        for listener in self.changed:
            listener(frozenset(asked))
        return SettingsUpdate([key for key in asked if _NAMES[key] in names], without_effect)

    def _checked(self, settings: Mapping[str, str]) -> list[_Change]:
        changes: list[_Change] = []
        for target in (self._config, self._store_config):
            names = keys_of(type(target))
            own = [Setting(key, text) for key, text in settings.items() if key in names]
            if own:
                checked = changed(target, own)
                values = {names[each.key]: getattr(checked, names[each.key]) for each in own}
                changes.append(_Change(target, values))
        return changes

    def _make(self, changes: Iterable[_Change]) -> set[str]:
        """Apply changes; return our names of the settings whose values changed."""
        made: set[str] = set()
        for target, values in changes:
            for name, value in values.items():
                before = getattr(target, name)
                if value == before:
                    continue
                log.info("%s is now %s, was %s", name, shown_value(value), shown_value(before))
                msgspec.structs.force_setattr(target, name, value)
                made.add(name)
        return made


def _is_without_effect(key: str, text: str) -> bool:
    """Whether a key has no effect, with any value or with this one.

    Raises:
        NotDynamic: It requires a feature that this version does not have.
    """
    unsupported = BROKER_SETTINGS.unsupported.get(key)
    if unsupported is None:
        return key in BROKER_SETTINGS.without_effect and key not in BLACK_LIST
    try:
        check_supported(Setting(key, text.strip()), unsupported)
    except ConfigError as error:
        raise NotDynamic(f"{error.message} {error.detail}") from None
    return True


def _check_dynamic(keys: Iterable[str]) -> None:
    for key in keys:
        if key in DYNAMIC_KEYS:
            continue
        if key not in BLACK_LIST and key not in BROKER_SETTINGS.with_effect:
            unknown = BROKER_SETTINGS.unknown(Setting(key, ""))
            raise NotDynamic(unknown.message, hint=unknown.hint)
        raise NotDynamic(
            f"{key} cannot be changed while the broker runs.",
            hint="Change it in the broker's settings file, and restart the broker.",
        )
