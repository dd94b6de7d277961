"""How far enough replicas have the log, from what each slave reports.

Owns the rule for SYNC_MASTER. The master itself counts as one replica:

.. code-block:: text

    enough = max(inSyncReplicas, 2)
    with enableAutoInSyncReplicas: max(min(enough, replicas in sync), minInSyncReplicas)

A slave is in sync while it is less than ``haMaxGapNotInSync`` behind. Upstream does not wait for
anybody if ``inSyncReplicas`` is 1, its default; here a SYNC_MASTER waits for at least one slave,
unless ``enableAutoInSyncReplicas`` allows it to go on alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from roquet.store.config import MessageStoreConfig

__all__ = ["Replicas", "count_replicas", "is_in_sync"]

_SYNC_REPLICAS_MIN = 2
_EVERYTHING = (1 << 63) - 1


class Replicas(NamedTuple):
    """What the reports of all slaves amount to.

    Attributes:
        in_sync: How many replicas are in sync, the master included.
        is_enough: Whether sends may expect enough of them to answer.
        is_accepting: Whether there are so many that sends are accepted at all.
        replicated_offset: The end of what enough replicas have; -1 if too few have reported.
    """

    in_sync: int
    is_enough: bool
    is_accepting: bool
    replicated_offset: int


def is_in_sync(config: MessageStoreConfig, max_offset: int, ack_offset: int) -> bool:
    """Whether a slave that has reported an offset is in sync."""
    return ack_offset >= 0 and max_offset - ack_offset < config.ha_max_gap_bytes


def count_replicas(
    config: MessageStoreConfig,
    max_offset: int,
    ack_offsets: Sequence[int],
    confirmed_offsets: Sequence[int] | None = None,
) -> Replicas:
    """Evaluate the last reports of all connected slaves, -1 for one that has not reported.

    ``confirmed_offsets`` is as much of each as waiting messages may be released by; all of it
    without.

    Example:
        >>> count_replicas(MessageStoreConfig(in_sync_replicas=3), 1000, [400, 1000, 700])
        Replicas(in_sync=4, is_enough=True, is_accepting=True, replicated_offset=700)
    """
    in_sync = 1 + sum(is_in_sync(config, max_offset, offset) for offset in ack_offsets)
    enough = max(config.in_sync_replicas, _SYNC_REPLICAS_MIN)
    if config.auto_in_sync_replicas:
        enough = max(min(enough, in_sync), config.min_in_sync_replicas)
    slaves = enough - 1
    confirmed = ack_offsets if confirmed_offsets is None else confirmed_offsets
    if not slaves:
        replicated_offset = _EVERYTHING
    elif len(confirmed) < slaves:
        replicated_offset = -1
    else:
        replicated_offset = sorted(confirmed, reverse=True)[slaves - 1]
    return Replicas(
        in_sync,
        is_enough=in_sync >= enough,
        is_accepting=in_sync >= config.min_in_sync_replicas,
        replicated_offset=replicated_offset,
    )
