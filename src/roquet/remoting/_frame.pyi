SLOT_NAMES: dict[str, int]

class Template:
    def __init__(self, parts: list[tuple[bytes, int]], ext_size_at: int) -> None: ...
