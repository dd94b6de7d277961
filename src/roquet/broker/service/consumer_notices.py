"""Telling consumers that their group changed: NOTIFY_CONSUMER_IDS_CHANGED.

Upstream's Broker2Client.notifyConsumerIdsChanged. Owns the changes of one turn of the event loop: a
group of which several members come or go at once is told once, of how it is in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from roquet.broker.manager.client_channel import ClientChannel
from roquet.errors import SendFailed
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.client import NotifyConsumerIdsChangedRequestHeader

__all__ = ["ConsumerNotices"]


class ConsumerNotices:
    """Tells the clients of groups.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._changed: dict[str, Sequence[ClientChannel]] = {}

    def notify(self, group: str, channels: Sequence[ClientChannel]) -> None:
        """Tell the clients of a group that it changed, once for all changes of a turn."""
        if not self._changed:
            self._loop.call_soon(self._tell)
        self._changed[group] = channels

    def _tell(self) -> None:
        changed, self._changed = self._changed, {}
        for group, channels in changed.items():
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
            for channel in channels:
                with suppress(SendFailed):  # a client that cannot be told is about to go
                    channel.connection.send_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
