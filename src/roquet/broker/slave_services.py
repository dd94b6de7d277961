"""What only a slave does, besides receiving the log: following its master's addresses and tables.

Owns the wiring of these services, and the order in which they start and stop.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.broker.processor.pull_response import PullResponse
from roquet.broker.service.master_watch import MasterWatch
from roquet.broker.service.slave_synchronize import SlaveSynchronize

__all__ = ["SlaveServices"]


class SlaveServices:
    """The services of a slave; its HA service must have started.

    Args:
        components: The broker's components.
        pulls: Builds the responses to pulls.

    Attributes:
        watch: Watches the master.
        sync: Copies the master's tables.
    """

    def __init__(self, components: BrokerComponents, pulls: PullResponse) -> None:
        self.watch = MasterWatch(components, pulls)
        self.sync = SlaveSynchronize(components)

    def start(self) -> None:
        """Start following."""
        self.watch.start()
        self.sync.start()

    async def stop(self) -> None:
        """Stop following; call it before the tables are saved."""
        await self.sync.stop()
        await self.watch.stop()
