"""The settings of a topic."""

from __future__ import annotations

from msgspec import Struct, field

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1

_QUEUE_TYPE = "queue.type"
_BATCH_QUEUE = "BatchCQ"


class TopicConfig(Struct, rename="camel", kw_only=True, gc=False):
    """One topic of a broker; the defaults are upstream's.

    Attributes:
        perm: 4 read, 2 write, 1 new topics may inherit these settings.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        topic_sys_flag: 1 unit, 2 subscribed from units.
        order: Whether producers keep to the queues that the name server lists for it.
        attributes: Settings that later versions added, by name.
    """

    attributes: dict[str, str] = field(default_factory=dict)
    order: bool = False
    perm: int = PERM_READ | PERM_WRITE
    read_queue_nums: int = 16
    topic_filter_type: str = "SINGLE_TAG"
    topic_name: str | None = None
    topic_sys_flag: int = 0
    write_queue_nums: int = 16

    @property
    def has_batch_queues(self) -> bool:
        """Whether its queues have one entry per batch instead of one per message."""
        return self.attributes.get(_QUEUE_TYPE) == _BATCH_QUEUE
