from collections.abc import Callable

from roquet.broker.hot._send import QueueCounts
from roquet.remoting._frame import Template

class Plan:
    group: str
    topic: str
    key: str
    def __init__(
        self,
        group: str,
        topic: str,
        key: str,
        queues: int,
        is_wanted: Callable[[int, None], bool] | None,
        near: tuple[Template, Template],
        far: tuple[Template, Template],
    ) -> None: ...

class Pulls:
    def forget_plans(self) -> None: ...
    def drain(self) -> list[tuple[Plan, int, int, list[QueueCounts]]]: ...
