"""The components of a broker without sockets and event loop."""

from __future__ import annotations

import msgspec

from roquet.broker.components import BrokerComponents, Environment, make_components
from roquet.broker.config import BrokerConfig
from roquet.broker.plugins import BrokerHooks
from roquet.model.host import Host
from roquet.remoting.tls_settings import TlsSettings
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.runtime.randomness import seeded
from roquet.store.default_message_store import DefaultMessageStore
from tests.unit.broker.service.manual_timers import ManualTimers

PORT = 10911
STORE_HOST = Host.parse(f"127.0.0.1:{PORT}")


def components_of(
    config: BrokerConfig,
    store: DefaultMessageStore,
    clock: ManualClock,
    *,
    files: Files | None = None,
    seed: int = 7,
    **given: object,
) -> BrokerComponents:
    """The components of a broker at :data:`STORE_HOST`; given ones replace its own."""
    environment = Environment(
        clock=clock,
        files=files or Files(),
        random=seeded(seed),
        timers=ManualTimers(clock),
        tls=TlsSettings(),
        hooks=BrokerHooks(),
    )
    parts = make_components(config, store, environment)
    parts.advertised.port = PORT
    return msgspec.structs.replace(parts, **given)
