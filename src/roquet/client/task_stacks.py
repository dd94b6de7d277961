"""The stacks of an event loop's tasks, as readable text.

Java's client reports the stacks of its threads instead.
"""

from __future__ import annotations

import asyncio

__all__ = ["task_stacks"]

FRAMES_MAX = 30


def task_stacks() -> str:
    """Return the stack of every task of the running loop, the innermost call first.

    Example:
        >>> async def main() -> str:
        ...     return task_stacks()
        >>> "main" in asyncio.run(main())
        True
    """
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return "\n".join(_stack_of(task) for task in tasks)


def _stack_of(task: asyncio.Task[object]) -> str:
    lines = [f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', '')}".rstrip()]
    lines += [
        f"    at {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
        for frame in reversed(task.get_stack(limit=FRAMES_MAX))
    ]
    return "\n".join(lines) + "\n"
