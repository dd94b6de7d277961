"""The services for delayed messages, messages sent back, and transactions.

Owns the wiring of these services: their tables, the requests they serve, and the order in which
they start and stop. A slave has the tables and refuses the requests, but delivers and checks
nothing.
"""

from __future__ import annotations

from roquet.broker.admin.half_message import HalfMessageAdmin
from roquet.broker.components import BrokerComponents
from roquet.broker.processor.end_transaction import EndTransactionProcessor
from roquet.broker.processor.send_back import SendBackProcessor
from roquet.broker.service.schedule_message import ScheduleMessageService
from roquet.broker.service.transaction_check import TransactionCheckService
from roquet.broker.service.transaction_op import TransactionOps
from roquet.store.config import BrokerRole

__all__ = ["MessageServices"]


class MessageServices:
    """The services; the store must be recovered and the tables loaded.

    Args:
        components: The broker's components.

    Attributes:
        schedule: Delivers delayed messages.
        send_back: Stores messages that consumers send back.
        end_transaction: Ends transactions.
        ops: Records ended transactions.
        checks: Checks open transactions.
        half_messages: Resumes checks.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._is_slave = components.store.config.broker_role is BrokerRole.SLAVE
        self.schedule = ScheduleMessageService(components)
        self.send_back = SendBackProcessor(components)
        self.ops = TransactionOps(components)
        self.end_transaction = EndTransactionProcessor(components, self.ops)
        self.checks = TransactionCheckService(components, self.ops)
        self.half_messages = HalfMessageAdmin(components)
        components.store.add_arriving_listener(self.schedule.notify_arriving)

    @property
    def processors(self) -> tuple[object, ...]:
        """The processors of these services."""
        return self.send_back, self.end_transaction, self.half_messages

    def start(self) -> None:
        """Start delivering and checking."""
        if not self._is_slave:
            self.schedule.start()
            self.checks.start()

    def stop(self) -> None:
        """Stop delivering and checking, and write the ended transactions to the log.

        Call it when no more requests come in, before the tables are written.
        """
        self.checks.stop()
        self.schedule.stop()
        self.ops.stop()
