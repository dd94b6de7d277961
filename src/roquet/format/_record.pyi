def crc32(data: bytes | memoryview) -> int: ...
def walk(
    view: bytes | memoryview, position: int, limit: int, start_offset: int, check_crc: bool
) -> tuple[int, int, int, int]: ...
def fits_entry(
    record: bytes | memoryview,
    physical_offset: int,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    tags_code: int,
) -> bool: ...
