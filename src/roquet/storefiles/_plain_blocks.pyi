from collections.abc import Callable

from roquet.storefiles.plain_blocks import PlainBlock

class PlainBlockReader:
    def __init__(self, number_of: Callable[[str, int], int], rows_max: int) -> None: ...
    def read(
        self, view: memoryview, position: int, stop: int, limit: int, base: int
    ) -> PlainBlock | None: ...
