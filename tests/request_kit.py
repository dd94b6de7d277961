"""Headers of requests, as clients fill them in."""

from __future__ import annotations

from roquet.model.topic import AUTO_CREATE_TOPIC_KEY_TOPIC
from roquet.remoting.headers.send import SendMessageRequestHeaderV2

BORN_MS = 1_700_000_000_000


def send_header(
    topic: str,
    *,
    producer_group: str = "shop",
    queue_id: int = 0,
    properties: str | None = None,
    sys_flag: int = 0,
    born_timestamp_ms: int = BORN_MS,
    default_topic_queue_nums: int = 4,
) -> SendMessageRequestHeaderV2:
    """The header of a send; the topic is created if it does not exist."""
    return SendMessageRequestHeaderV2(
        producer_group=producer_group,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        default_topic_queue_nums=default_topic_queue_nums,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        flag=0,
        properties=properties,
    )
