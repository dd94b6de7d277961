from array import array
from collections.abc import Callable

class PlainBlock:
    rows: int
    reached: int
    physical_offsets: array[int]
    sizes: array[int]
    store_times_ms: array[int]
    places: array[int]
    queue_offsets: array[int]
    tags_codes: array[int]
    owed_keys: array[int]
    tag_keys: array[int]

class PlainBlockReader:
    def __init__(self, number_of: Callable[[str, int], int], rows_max: int) -> None: ...
    def read(
        self, view: memoryview, position: int, stop: int, limit: int, base: int
    ) -> PlainBlock | None: ...
