from roquet.client.message import ReceivedMessage

def read_plain(
    data: bytes,
    position: int,
    found: list[ReceivedMessage],
    broker_name: str,
    queue_id: int,
    offset_delta: int,
) -> int: ...
