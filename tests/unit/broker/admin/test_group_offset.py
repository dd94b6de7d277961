"""Offsets of groups compared and copied."""

from __future__ import annotations

import pytest

from roquet.broker.admin.group_offset import LONG_MAX
from roquet.broker.manager.consumer_offset import ConsumerOffsetManager
from roquet.remoting.bodies.offset import QueryCorrectionOffsetBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import offset as headers
from roquet.runtime.files import Files
from tests.unit.broker.admin.clients_kit import subscribe
from tests.unit.broker.admin.kit import Desk


@pytest.fixture(name="at")
def _at(at: Desk) -> Desk:
    for topic in ("T", "U"):
        at.add_topic(topic, 2)
        at.offsets.commit("From", topic, 0, 3)
    at.offsets.commit("To", "T", 1, 9)
    return at


def clone(
    topic: str | None = None, *, to: str = "To", offline: bool = False
) -> headers.CloneGroupOffsetRequestHeader:
    return headers.CloneGroupOffsetRequestHeader(
        source_group="From", destination_group=to, topic=topic, offline=offline
    )


async def test_offsets_of_a_topic_are_copied(at: Desk) -> None:
    await at.ask_ok(RequestCode.CLONE_GROUP_OFFSET, clone("T"))
    assert at.offsets.offsets_of("To", "T") == {0: 3}
    assert at.offsets.offsets_of("To", "U") is None
    again = ConsumerOffsetManager.at(at.config, Files(), at.clock)
    again.load()
    assert again.offsets_of("To", "T") == {0: 3}


async def test_offsets_of_all_topics_are_copied(at: Desk) -> None:
    at.offsets.commit("From", "Gone", 0, 3)
    await at.ask_ok(RequestCode.CLONE_GROUP_OFFSET, clone())
    assert at.offsets.topics_of_group("To") == {"T", "U"}


async def test_topics_that_clients_do_not_subscribe_to(at: Desk) -> None:
    subscribe(at, "From", "T")
    await at.ask_ok(RequestCode.CLONE_GROUP_OFFSET, clone())
    assert at.offsets.topics_of_group("To") == {"T"}
    await at.ask_ok(RequestCode.CLONE_GROUP_OFFSET, clone(offline=True))
    assert at.offsets.topics_of_group("To") == {"T", "U"}


async def test_a_group_without_offsets_is_not_copied(at: Desk) -> None:
    header = headers.CloneGroupOffsetRequestHeader(
        source_group="None", destination_group="To", topic="T"
    )
    await at.ask_ok(RequestCode.CLONE_GROUP_OFFSET, header)
    assert at.offsets.offsets_of("To", "T") == {1: 9}


@pytest.mark.parametrize("name", ["", "a@b", "x" * 300])
async def test_an_invalid_group_name(at: Desk, name: str) -> None:
    before = dict(at.offsets.table)
    answer = await at.ask(RequestCode.CLONE_GROUP_OFFSET, clone("T", to=name))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert at.offsets.table == before


async def correction(at: Desk, compare: str, filtered: str | None = None) -> dict[int, int]:
    header = headers.QueryCorrectionOffsetRequestHeader(
        topic="T", compare_group=compare, filter_groups=filtered
    )
    code = RequestCode.QUERY_CORRECTION_OFFSET
    return (await at.body_of(code, header, QueryCorrectionOffsetBody)).correction_offsets


async def test_the_least_offsets(at: Desk) -> None:
    at.offsets.commit("Other", "T", 0, 7)
    at.offsets.commit("Other", "T", 1, 8)
    assert await correction(at, "None") == {0: 3, 1: 8}
    assert await correction(at, "Other", "From,To") == {0: 7, 1: 8}


async def test_excluded_groups_keep_their_offsets(at: Desk) -> None:
    await correction(at, "None", "From,To")
    assert at.offsets.topics_of_group("From") == {"T", "U"}


async def test_a_group_that_is_behind_needs_no_correction(at: Desk) -> None:
    at.offsets.commit("Behind", "T", 0, 1)
    assert await correction(at, "Behind", "Behind") == {0: LONG_MAX, 1: 9}


async def test_corrections_of_an_unknown_topic(at: Desk) -> None:
    header = headers.QueryCorrectionOffsetRequestHeader(topic="None", compare_group="From")
    answer = await at.ask_ok(RequestCode.QUERY_CORRECTION_OFFSET, header)
    assert answer.body == b'{"correctionOffsets":{}}'
