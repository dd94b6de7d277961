"""Stores that wrap a store: upstream's messageStorePlugIn.

Owns the chain. ``messageStorePlugIn`` holds names separated by commas, each
``package.module:Class`` or the name of an entry point of group ``roquet.message_stores``. The first
name becomes the outermost store, as in upstream's MessageStoreFactory.

A plug-in is a subclass of :class:`PluginMessageStore` and overrides the methods it changes. Puts
arrive through three methods, :meth:`~PluginMessageStore.submit`,
:meth:`~PluginMessageStore.put_burst` and :meth:`~PluginMessageStore.put_message`; to see or refuse
every put, override all three, or add a put hook, which they share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from roquet.errors import ConfigError, RoquetError
from roquet.runtime.plugin import plugin_names
from roquet.store.config import MessageStoreConfig
from roquet.store.forward import forwards
from roquet.store.message_store import MessageStore

SETTING = "messageStorePlugIn"
ENTRY_POINT_GROUP = "roquet.message_stores"


def build_store(config: MessageStoreConfig, store: MessageStore) -> MessageStore:
    """Wrap a store in the configured plug-ins.

    Raises:
        ConfigError: A name does not refer to a plug-in, or the plug-in fails.
    """
    names = plugin_names(config.message_store_plug_in, setting=SETTING, group=ENTRY_POINT_GROUP)
    for name in reversed(names):
        found = name.load()
        if not (isinstance(found, type) and issubclass(found, PluginMessageStore)):
            raise name.refusal(f"{found!r} is not a subclass of PluginMessageStore")
        store = name.make(partial(found, store))
    return store


@contextmanager
def plug_in_faults(store: MessageStore) -> Iterator[None]:
    """Report a plug-in's errors at the start as such; leave those of Roquet and of files as is.

    Raises:
        ConfigError: A plug-in failed.
    """
    try:
        yield
    except (RoquetError, OSError):
        raise
    except Exception as error:
        if not isinstance(store, PluginMessageStore):
            raise
        raise ConfigError(
            "A plug-in of the store failed at startup.",
            code="plugin",
            detail=f"{type(error).__name__}: {error}",
            hint=f"Fix it, or remove it from {SETTING}.",
        ) from error


_IN_MEMORY = "get_message_in_memory"


@forwards("next_store", MessageStore)
class PluginMessageStore(MessageStore):
    """A store that forwards everything to the next one; plug-ins override parts of it.

    Example:
        >>> class ReadOnly(PluginMessageStore):
        ...     def start(self) -> None:
        ...         super().start()
        ...         self.put_hooks.append(lambda message: REFUSED)
    """

    def __init__(self, next_store: MessageStore) -> None:
        """Wrap ``next_store``."""
        self.next_store = next_store

    def __init_subclass__(cls) -> None:
        """Call a plug-in that overrides only ``get_message`` in a thread, as it may block."""
        super().__init_subclass__()
        overrider = next(each for each in cls.__mro__ if "get_message" in vars(each))
        reader = next(each for each in cls.__mro__ if _IN_MEMORY in vars(each))
        if cls.__mro__.index(overrider) < cls.__mro__.index(reader):
            setattr(cls, _IN_MEMORY, _leave_to_a_thread)


def _leave_to_a_thread(*_: object, **__: object) -> None:
    """The result of an in-memory read that may wait for the disk: ``None``."""
