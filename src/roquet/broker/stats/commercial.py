"""Per-account counters, fed by hooks.

Upstream's broker has the names and leaves the counting to a hook that is not part of it. This is
such a hook: a send counts for the account that its request names as ``Owner``, one per few KiB; so
does a pull. It is not installed by default, because with hooks no request is plain:

.. code-block:: text

    outcome                     counters
    SEND_SUCCESS, SEND_FAILURE  COMMERCIAL_SEND_TIMES, COMMERCIAL_SEND_SIZE
    RCV_SUCCESS                 COMMERCIAL_RCV_TIMES, COMMERCIAL_RCV_SIZE
    RCV_EPOLLS                  COMMERCIAL_RCV_EPOLLS
    SEND_BACK, …_TO_DLQ         COMMERCIAL_SNDBCK_TIMES

To install them, call ``broker.hooks.send.append(CommercialSendHook(broker.stats))``, and likewise
for ``consume``, at any time.
"""

from __future__ import annotations

from roquet.broker.hooks import ConsumeMessageContext, SendMessageContext, StatsType
from roquet.broker.stats.broker_stats import BrokerStats

__all__ = ["NOBODY", "OWNER_FIELD", "CommercialConsumeHook", "CommercialSendHook"]

OWNER_FIELD = "Owner"
"""The field of a request that names the account."""

NOBODY = "null"
"""The account of requests that name none, as in upstream."""

UNIT_BYTES = 4_096


class _Commercial:
    """Counts for accounts.

    Args:
        stats: The counters.
        base_count: The count per unit.
        unit_bytes: The bytes per unit.
    """

    def __init__(
        self, stats: BrokerStats, *, base_count: int = 1, unit_bytes: int = UNIT_BYTES
    ) -> None:
        self._stats = stats
        self._base_count = base_count
        self._unit_bytes = unit_bytes

    def _add(
        self, name: str, context: SendMessageContext | ConsumeMessageContext, group: str, value: int
    ) -> None:
        self._stats.add_commercial(
            name,
            owner=context.ext_fields.get(OWNER_FIELD, NOBODY),
            group=group,
            topic=context.topic,
            kind="" if context.stats_type is None else context.stats_type.name,
            value=value,
        )


class CommercialSendHook(_Commercial):
    """Counts sends for accounts.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> hooks = [CommercialSendHook(BrokerStats("c", ManualClock()))]
    """

    def before(self, context: SendMessageContext) -> None:
        """Do nothing: the outcome is not known yet."""

    def after(self, context: SendMessageContext) -> None:
        """Count a send whose response is known."""
        if context.stats_type is None:
            return
        units = -(-context.wrote_bytes // self._unit_bytes)
        if context.stats_type is StatsType.SEND_SUCCESS:
            units *= self._base_count
        for name, value in (
            ("COMMERCIAL_SEND_TIMES", units),
            ("COMMERCIAL_SEND_SIZE", context.wrote_bytes),
        ):
            self._add(name, context, context.producer_group, value)


class CommercialConsumeHook(_Commercial):
    """Counts pulls and messages sent back for accounts; a message is at least one unit."""

    def before(self, context: ConsumeMessageContext) -> None:
        """Count a pull that is about to get its response."""
        if context.stats_type is StatsType.RCV_SUCCESS:
            units = max(context.message_count, -(-context.message_bytes // self._unit_bytes))
            self._add(
                "COMMERCIAL_RCV_TIMES", context, context.consumer_group, units * self._base_count
            )
            self._add("COMMERCIAL_RCV_SIZE", context, context.consumer_group, context.message_bytes)
        elif context.stats_type is StatsType.RCV_EPOLLS:
            self._add("COMMERCIAL_RCV_EPOLLS", context, context.consumer_group, 1)

    def after(self, context: ConsumeMessageContext) -> None:
        """Count a message that was sent back."""
        if context.stats_type in {StatsType.SEND_BACK, StatsType.SEND_BACK_TO_DLQ}:
            self._add("COMMERCIAL_SNDBCK_TIMES", context, context.consumer_group, 1)
