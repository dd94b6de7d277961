from roquet.runtime.files import WriteHook
from roquet.store.consume_queue import ConsumeQueue

def write_pending(
    touched: list[ConsumeQueue], grown: list[ConsumeQueue], *, before: WriteHook | None = None
) -> None: ...
