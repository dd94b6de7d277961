from collections.abc import Iterable

from roquet.runtime.files import Buffer
from roquet.spark.log._columns import Block
from roquet.spark.log.selection import Selection

class Decoder:
    def __init__(
        self,
        columns: Iterable[str],
        selection: Selection,
        *,
        check_crc: bool,
        rows_max: int,
        bytes_max: int,
    ) -> None: ...
    def decode(
        self, data: Buffer, position: int, stop: int, end: int, base: int
    ) -> tuple[Block, int, int]: ...
