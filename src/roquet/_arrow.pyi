from collections.abc import Callable, Iterable
from typing import TypeAlias

from roquet.runtime.files import Buffer

FIXED_NAMES: tuple[str, ...]
VARYING_NAMES: tuple[str, ...]
MAP_NAME: str

ENDED: int
FULL: int
BLANK: int
FAULT: int
MORE: int

_Varying: TypeAlias = tuple[int, int, int, int, int]

class Block:
    rows: int
    compressed: list[tuple[int, int]]

    def fixed(self, name: str) -> tuple[int, int, int, int]: ...
    def varying(self, name: str) -> _Varying: ...
    def entries(self) -> tuple[int, int, _Varying, _Varying]: ...

class Decoder:
    def __init__(
        self,
        *,
        columns: Iterable[str],
        rows_max: int,
        bytes_max: int,
        check_crc: bool,
        takes_topic: Callable[[str], bool] | None,
        queue_ids: Iterable[int],
        key_bytes: Iterable[bytes],
        takes_keys: Callable[[dict[str, str]], bool],
        store_from_ms: int,
        store_to_ms: int,
        is_good: Callable[[bytes, int], bool],
        read_properties: Callable[[bytes], dict[str, str]],
        read_host: Callable[[bytes], str],
    ) -> None: ...
    def decode(
        self, data: Buffer, position: int, stop: int, end: int, base: int
    ) -> tuple[Block, int, int]: ...

def walk(
    data: Buffer, position: int, stop: int, end: int, base: int, *, records_max: int
) -> tuple[int, int, int]: ...
