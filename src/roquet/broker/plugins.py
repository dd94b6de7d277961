"""Users' hooks: how they are named and loaded.

Owns the three settings that name hooks, with their entry point groups:

=================== ===================================================== ======================
setting             hook type                                             entry point group
=================== ===================================================== ======================
sendMessageHooks    :class:`~roquet.broker.hooks.SendMessageHook`         roquet.send_hooks
consumeMessageHooks :class:`~roquet.broker.hooks.ConsumeMessageHook`      roquet.consume_hooks
rpcHooks            :class:`~roquet.remoting.hooks.RpcHook`               roquet.rpc_hooks
=================== ===================================================== ======================

A name refers to a class or function that is called with the broker's settings and returns the
hook. Hooks are called in the order of their names. Only hooks named in a setting are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

from msgspec import Struct, field

from roquet.broker.config import BrokerConfig
from roquet.broker.hooks import ConsumeMessageHook, SendMessageHook
from roquet.remoting.hooks import RpcHook
from roquet.runtime.plugin import plugin_names

__all__ = [
    "CONSUME_HOOKS_GROUP",
    "RPC_HOOKS_GROUP",
    "SEND_HOOKS_GROUP",
    "BrokerHooks",
    "load_hooks",
]

SEND_HOOKS_GROUP = "roquet.send_hooks"
CONSUME_HOOKS_GROUP = "roquet.consume_hooks"
RPC_HOOKS_GROUP = "roquet.rpc_hooks"

_AROUND_MESSAGES = ("before", "after")
_AROUND_REQUESTS = ("before_request", "after_response")


class BrokerHooks(Struct, kw_only=True):
    """The hooks of a broker.

    Attributes:
        send: Around sends and replies.
        consume: Around pulls and messages sent back.
        rpc: Around every request.
    """

    send: list[SendMessageHook] = field(default_factory=list)
    consume: list[ConsumeMessageHook] = field(default_factory=list)
    rpc: list[RpcHook] = field(default_factory=list)


def load_hooks(config: BrokerConfig, also: BrokerHooks | None = None) -> BrokerHooks:
    """Create the hooks that the settings name.

    Args:
        config: The settings, which are passed to the hooks.
        also: Hooks that are called after those.

    Raises:
        ConfigError: A name refers to no hook, or to one that fails.
    """
    also = also or BrokerHooks()
    send = _hooks(config, config.send_message_hooks, "sendMessageHooks", SEND_HOOKS_GROUP)
    consume = _hooks(
        config, config.consume_message_hooks, "consumeMessageHooks", CONSUME_HOOKS_GROUP
    )
    rpc = _hooks(config, config.rpc_hooks, "rpcHooks", RPC_HOOKS_GROUP, _AROUND_REQUESTS)
    return BrokerHooks(
        send=[*cast("Iterator[SendMessageHook]", send), *also.send],
        consume=[*cast("Iterator[ConsumeMessageHook]", consume), *also.consume],
        rpc=[*cast("Iterator[RpcHook]", rpc), *also.rpc],
    )


def _hooks(
    config: BrokerConfig,
    names: str,
    setting: str,
    group: str,
    methods: tuple[str, str] = _AROUND_MESSAGES,
) -> Iterator[object]:
    for name in plugin_names(names, setting=setting, group=group):
        factory = name.load()
        if not callable(factory):
            raise name.refusal(f"{factory!r} is neither a class nor a function")
        hook: object = name.make(partial(factory, config))
        missing = [each for each in methods if not callable(getattr(hook, each, None))]
        if missing:
            raise name.refusal(f"{hook!r} has no method {' and no method '.join(missing)}")
        yield hook
