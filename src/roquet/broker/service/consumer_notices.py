"""Notifies consumers that their group changed: NOTIFY_CONSUMER_IDS_CHANGED.

Upstream's Broker2Client.notifyConsumerIdsChanged. Owns the pending notices: if several members of a
group come or go at once, the group is notified once. At most :data:`TOLD_A_TURN` clients are
notified per iteration of the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.service.timers import Timers
from roquet.errors import SendFailed
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader

__all__ = ["TOLD_A_TURN", "ConsumerNotices"]

TOLD_A_TURN = 64


class ConsumerNotices:
    """Notifies the clients of groups.

    Args:
        timers: The event loop.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._changed: dict[str, Sequence[ClientChannel]] = {}
        self._telling: tuple[str, Iterator[ClientChannel]] | None = None
        self._is_scheduled = False

    def notify(self, group: str, channels: Sequence[ClientChannel]) -> None:
        """Notify the clients of a group of a change, once for all changes in a turn."""
        self._changed[group] = channels
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_scheduled = False
        left = TOLD_A_TURN
        while left:
            if self._telling is None:
                if not self._changed:
                    return
                group = next(iter(self._changed))
                self._telling = (group, iter(self._changed.pop(group)))
            group, channels = self._telling
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
            for channel in islice(channels, left):
                left -= 1
                with suppress(SendFailed):  # an unreachable client is about to disconnect
                    channel.connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
            if left:
                self._telling = None
        self._go_on_soon()
