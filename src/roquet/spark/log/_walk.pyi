from roquet.runtime.files import Buffer

def walk(
    data: Buffer, position: int, stop: int, end: int, base: int, *, records_max: int
) -> tuple[int, int, int]: ...
