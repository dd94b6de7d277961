"""Creating, changing, deleting and showing groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.model.subscription import SubscriptionGroupConfig
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.group import SubscriptionGroupList, SubscriptionGroupWrapper
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from tests.table_changes import forbid
from tests.unit.broker.admin.kit import Desk, desk


async def update(at: Desk, group: SubscriptionGroupConfig) -> RemotingCommand:
    return await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(group))


async def update_list(at: Desk, *groups: SubscriptionGroupConfig) -> RemotingCommand:
    body = encode_body(SubscriptionGroupList(group_config_list=list(groups)))
    return await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)


async def test_a_group_is_created_and_changed(at: Desk) -> None:
    answer = await update(at, SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, None)
    assert at.groups.table["G"].retry_max_times == 3
    await update(at, SubscriptionGroupConfig(group_name="G", consume_enable=False))
    assert not at.groups.table["G"].consume_enable


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        (None, "The specified group is blank."),
        (" ", "The specified group is blank."),
        (
            "a b",
            "The specified group: a b, contains illegal characters, "
            "allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "g" * 121,
            f"The specified group: {'g' * 121}, is longer than group max length: 120",
        ),
    ],
)
async def test_bad_names(at: Desk, name: str | None, remark: str) -> None:
    before = dict(at.groups.table)
    good, bad = SubscriptionGroupConfig(group_name="G"), SubscriptionGroupConfig(group_name=name)
    for answer in (await update(at, bad), await update_list(at, good, bad)):
        assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)
    assert at.groups.table == before


async def test_nothing_is_created_without_a_body(at: Desk) -> None:
    before = dict(at.groups.table)
    await at.ask_ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    assert at.groups.table == before


async def test_a_list_of_groups(at: Desk) -> None:
    groups = [SubscriptionGroupConfig(group_name=name) for name in ("A", "B")]
    assert (await update_list(at, *groups)).code == ResponseCode.SUCCESS
    assert {"A", "B"} <= at.groups.table.keys()


async def test_a_list_with_a_bad_attribute_creates_none(at: Desk) -> None:
    bad = SubscriptionGroupConfig(group_name="B", attributes={"+none": "1"})
    answer = await update_list(at, SubscriptionGroupConfig(group_name="A"), bad)
    assert (answer.code, answer.remark) == (1, "unsupported key: none")
    assert "A" not in at.groups.table


@pytest.mark.parametrize("clean_offset", [False, True])
async def test_a_group_is_deleted(at: Desk, tmp_path: Path, *, clean_offset: bool) -> None:
    await update(at, SubscriptionGroupConfig(group_name="G"))
    at.offsets.commit("G", "T", 0, 5)
    at.offsets.persist()
    header = headers.DeleteSubscriptionGroupRequestHeader(group_name="G", clean_offset=clean_offset)
    await at.ask_ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    assert "G" not in at.groups.table
    assert at.offsets.query("G", "T", 0) == (-1 if clean_offset else 5)
    text = (tmp_path / "store" / "config" / "consumerOffset.json").read_text()
    assert ("T@G" in text) is not clean_offset


async def test_all_groups(at: Desk) -> None:
    await update(at, SubscriptionGroupConfig(group_name="G"))
    forbid(at.groups, "G", "T", 2, forbidden=True)
    header = headers.GetAllSubscriptionGroupRequestHeader()
    answer = await at.ask_ok(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
    assert answer.ext_fields == {"totalGroupNum": str(len(at.groups.table))}
    body = await at.body_of(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header, SubscriptionGroupWrapper
    )
    assert body.subscription_group_table == at.groups.table
    assert body.forbidden_table == {"G": {"T": 4}}
    assert body.data_version == at.groups.data_version


async def test_groups_by_pages(at: Desk) -> None:
    forbid(at.groups, "TOOLS_CONSUMER", "T", 2, forbidden=True)
    version = encode_body(at.groups.data_version).decode()
    names = sorted(at.groups.table)
    for start in range(0, len(names), 3):
        header = headers.GetAllSubscriptionGroupRequestHeader(
            group_seq=start, data_version=version, max_group_num=3
        )
        body = await at.body_of(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header, SubscriptionGroupWrapper
        )
        page = names[start : start + 3]
        assert list(body.subscription_group_table) == page
        assert list(body.forbidden_table) == ["TOOLS_CONSUMER"] * ("TOOLS_CONSUMER" in page)


async def test_one_group(at: Desk) -> None:
    await update(at, SubscriptionGroupConfig(group_name="G", retry_queue_nums=2))
    group = await at.body_of(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        headers.GetSubscriptionGroupConfigRequestHeader(group="G"),
        SubscriptionGroupConfig,
    )
    assert group == at.groups.table["G"]


async def test_a_query_may_create_a_group(tmp_path: Path) -> None:
    header = headers.GetSubscriptionGroupConfigRequestHeader(group="New")
    with desk(tmp_path / "a") as at:
        await at.ask_ok(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        assert "New" in at.groups.table
    with desk(tmp_path / "b", auto_create_subscription_group=False) as at:
        answer = await at.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
        assert (answer.code, answer.remark) == (26, "No group in this broker")
