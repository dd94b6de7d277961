"""Settings that an administrator may change while the broker runs.

Owns the list of them, :data:`DYNAMIC_KEYS`, and the file ``<store root>/config/broker.properties``,
which holds what was changed and wins over the broker's own file at the next start.

Invariants:

* Nothing that is not on the list changes, whoever asks: no path, no address, no class to load, no
  limit of what is on disk already, nothing that decides when a message counts as stored.
* Everything on the list is read anew each time that it is needed, so a change has its effect at
  once. What somebody reads once, at the start, is not on the list.
* A change is all or nothing: it is checked as at the start, then kept in the file, then made.

Settings are frozen everywhere else; here alone they are changed in place, because all parts of the
broker share the two structs.
"""

from __future__ import annotations

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
from roquet.runtime.settings import Setting, changed, keys_of, shown_value
from roquet.store.config import MessageStoreConfig

__all__ = ["BLACK_LIST", "DYNAMIC_KEYS", "DynamicSettings", "NotDynamic"]

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
"""Upstream's keys of what may be changed."""


BLACK_LIST = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""What upstream refuses; they have no effect here, and are refused all the same."""


class NotDynamic(ConfigError):
    """A setting that cannot be changed while the broker runs."""

    default_code = "config_not_dynamic"


class _Change(NamedTuple):
    """Values of one struct, checked, by our names."""

    target: Struct
    values: dict[str, object]


class DynamicSettings:
    """Changes settings.

    Args:
        config: The broker's settings, changed in place.
        store_config: The settings of its files, changed in place.
        file: Where changes are kept; see :meth:`at`.
        clock: The time.

    Attributes:
        data_version: Goes up with every change.
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
        self.data_version = DataVersion(timestamp_ms=clock.now_ms())
        self.changed: list[Callable[[frozenset[str]], None]] = []

    @classmethod
    def at(
        cls, config: BrokerConfig, store_config: MessageStoreConfig, files: Files, clock: Clock
    ) -> DynamicSettings:
        """Settings whose changes are kept in the store of ``config``."""
        path = config_path(config.store_root, _FILE_NAME)
        file = ConfigFile(path, files, decode=parse_properties)
        return cls(config, store_config, file, clock)

    def load(self) -> ConfigError | None:
        """Make the changes of earlier lives; to be called before others read the settings.

        A change that is no longer allowed, or no longer valid, is told and left out.

        Returns:
            What is wrong with the file when its backup was used.

        Raises:
            ConfigError: Neither file can be used.
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
                log.info("%s=%s, which an administrator set", key, text)
        return loaded.problem

    def update(self, settings: Mapping[str, str]) -> list[str]:
        """Change settings.

        Args:
            settings: Values as they are written in a file, by upstream's keys.

        Returns:
            Those of the keys that have no effect in this version.

        Raises:
            NotDynamic: One of them may not be changed; nothing was.
            ConfigError: A value cannot be used; nothing was changed.
            StoreError: The change could not be kept; nothing was changed.
        """
        without_effect = [
            key
            for key in settings
            if key in BROKER_SETTINGS.without_effect and key not in BLACK_LIST
        ]
        asked = {key: text.strip() for key, text in settings.items() if key not in without_effect}
        _check_dynamic(asked)
        if not asked:
            return without_effect
        changes = self._checked(asked)
        kept = self._kept | asked
        self._file.save(_HEAD + format_properties(kept))
        self._kept = kept
        self._make(changes)
        self.data_version.counter += 1
        self.data_version.timestamp_ms = self._clock.now_ms()
        for listener in self.changed:
            listener(frozenset(asked))
        return without_effect

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

    def _make(self, changes: Iterable[_Change]) -> None:
        for target, values in changes:
            for name, value in values.items():
                log.info(
                    "%s is now %s, was %s",
                    name, shown_value(value), shown_value(getattr(target, name)),
                )  # fmt: skip
                msgspec.structs.force_setattr(target, name, value)


def _check_dynamic(keys: Iterable[str]) -> None:
    for key in keys:
        if key in DYNAMIC_KEYS:
            continue
        is_known = key in BLACK_LIST or key in BROKER_SETTINGS.with_effect
        if not is_known and key not in BROKER_SETTINGS.unsupported:
            unknown = BROKER_SETTINGS.unknown(Setting(key, ""))
            raise NotDynamic(unknown.message, hint=unknown.hint)
        raise NotDynamic(
            f"{key} cannot be changed while the broker runs.",
            hint="Change it in the broker's file of settings, and start the broker anew.",
        )
