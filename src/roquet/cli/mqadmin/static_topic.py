"""Commands about static topics.

Both write the current and the planned mapping to temporary files, as upstream does; with ``-mf``
such a file is the plan. Upstream lists that flag but ignores it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roquet.admin.static_plan import check_known, plan_create, plan_remap, state_of
from roquet.admin.static_topics import StaticTopics
from roquet.cli.mqadmin.commons_cli import Flags
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.java import BadNumber
from roquet.cli.mqadmin.tool import Tool
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.static_topic import TopicRemappingDetailWrapper

__all__ = ["COMMANDS"]

BEFORE = ".before"
AFTER = ".after"


@contextmanager
def _as_java_fails() -> Iterator[None]:
    try:
        yield
    except BadNumber:
        raise
    except ValueError as error:
        raise JavaFailure("java.lang.RuntimeException", str(error)) from error


async def _topics(tool: Tool) -> StaticTopics:
    info = await tool.cluster_info()
    if not info.cluster_addr_table:
        raise ValueError("The Cluster info is empty")
    return StaticTopics(tool, info)


def _targets(topics: StaticTopics, flags: Flags) -> list[str]:
    if "b" in flags:
        return [name.strip() for name in flags.text("b").split(",")]
    targets = topics.brokers_of(name.strip() for name in flags.text("c").split(","))
    if not targets:
        raise ValueError("Find none brokers, do nothing")
    return targets


def _write(tool: Tool, plan: TopicRemappingDetailWrapper, suffix: str, words: str) -> None:
    path = Path(tempfile.gettempdir()) / f"{plan.topic}-{plan.epoch}{suffix}"
    path.write_bytes(encode_body(plan))
    tool.say(f"The {words} mapping data is written to file {path}\n", file=str(path))


def _read(flags: Flags) -> TopicRemappingDetailWrapper:
    plan = decode_body(TopicRemappingDetailWrapper, Path(flags.text("mf")).read_bytes())
    check_known(flags.text("t"), plan.configs)
    return plan


async def update_static_topic(tool: Tool, flags: Flags) -> None:
    """``updateStaticTopic``."""
    topic = flags.text("t")
    with _as_java_fails():
        topics = await _topics(tool)
        if "mf" in flags:
            await topics.create(_read(flags), force=flags.truth("fr"))
            return
        targets = _targets(topics, flags)
        known = await topics.known(topic)
        queues, now_ms = flags.number("qn"), tool.now_ms
        epoch = check_known(topic, known)[0] if known else now_ms
        _write(tool, state_of(topic, known, epoch=epoch), BEFORE, "old")
        plan = plan_create(topic, queues, [*targets, *known], known, now_ms=now_ms)
        _write(tool, plan, AFTER, "new")
        await topics.create(plan)


async def remapping_static_topic(tool: Tool, flags: Flags) -> None:
    """``remappingStaticTopic``."""
    topic = flags.text("t")
    with _as_java_fails():
        topics = await _topics(tool)
        if "mf" in flags:
            await topics.remap(_read(flags), force=flags.truth("fr"))
            return
        targets = _targets(topics, flags)
        topics.check_alive(targets)
        known = await topics.known(topic)
        if not known:
            raise ValueError("No topic route to do the remapping")
        epoch, _ = check_known(topic, known)
        _write(tool, state_of(topic, known, epoch=epoch), BEFORE, "old")
        plan = plan_remap(topic, known, targets, now_ms=tool.now_ms)
        # Upstream calls this one "old" as well.
        _write(tool, plan, AFTER, "old")
        await topics.remap(plan)


COMMANDS = {
    "updateStaticTopic": update_static_topic,
    "remappingStaticTopic": remapping_static_topic,
}
