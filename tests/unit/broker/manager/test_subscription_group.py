"""Consumer groups: who creates them, how they change, and their restrictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import subscription_group as module
from roquet.broker.manager.subscription_group import (
    SYSTEM_GROUPS,
    SubscriptionGroupManager,
    is_system_group,
)
from roquet.errors import ConfigError, StoreError
from roquet.model.subscription import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
)
from roquet.runtime.clock import ManualClock
from tests.table_changes import drop_group, forbid, put_groups
from tests.unit.broker.manager.kit import Calls, FillingDisk, warnings_of


class Groups:
    """A manager on a disk of its own that can be restarted."""

    def __init__(self, root: Path, **settings: bool) -> None:
        self.config = BrokerConfig(store_root=str(root), **settings)  # type: ignore[arg-type]
        self.path = root / "config" / "subscriptionGroup.json"
        self.disk = FillingDisk()
        self.clock = ManualClock()
        self.manager = self.again()
        self.calls = Calls()
        self.manager.changed.append(self.calls)

    def again(self) -> SubscriptionGroupManager:
        manager = SubscriptionGroupManager.at(self.config, self.disk, self.clock)
        assert manager.load() is None
        return manager


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


def counter(manager: SubscriptionGroupManager) -> int:
    return manager.data_version.counter


def test_system_groups_exist(groups: Groups) -> None:
    assert tuple(groups.manager.table) == SYSTEM_GROUPS
    assert groups.manager.find("TOOLS_CONSUMER") == SubscriptionGroupConfig(
        group_name="TOOLS_CONSUMER"
    )
    assert counter(groups.manager) == 0
    assert is_system_group("CID_RMQ_SYS_TRANS")
    assert not is_system_group("TOOLS_CONSUMER")


# ---------------------------------------------------------------------- created by consumers


def test_a_consumer_creates_its_group(groups: Groups) -> None:
    made = groups.manager.find("g")
    assert made == SubscriptionGroupConfig(group_name="g")
    assert groups.manager.find("g") is made
    assert (counter(groups.manager), groups.calls.count) == (1, 1)
    assert not groups.path.exists(), "it waits for the next persist"
    groups.manager.persist()
    assert groups.again().table["g"] == made
    assert counter(groups.again()) == 1


def test_a_full_disk_does_not_prevent_a_consumer_from_creating_its_group(groups: Groups) -> None:
    groups.disk.is_full = True
    assert groups.manager.find("g") is not None
    with pytest.raises(StoreError):
        groups.manager.persist()
    groups.disk.is_full = False
    groups.manager.persist()
    assert "g" in groups.again().table


@pytest.mark.parametrize("group", ["", " ", "a b", "a/b", "g" * 121, "Gruppe@ü"])
def test_no_group_with_a_bad_name(groups: Groups, group: str) -> None:
    assert groups.manager.find(group) is None
    assert group not in groups.manager.table
    assert groups.calls.count == 0


@pytest.mark.parametrize(
    ("auto_create", "create_system", "made"),
    [
        (True, True, {"g", "CID_RMQ_SYS_x"}),
        (True, False, {"g", "CID_RMQ_SYS_x"}),
        (False, True, {"CID_RMQ_SYS_x"}),
        (False, False, set()),
    ],
)
def test_settings_decide_who_creates_groups(
    tmp_path: Path, *, auto_create: bool, create_system: bool, made: set[str]
) -> None:
    manager = Groups(
        tmp_path,
        auto_create_subscription_group=auto_create,
        enable_create_system_group=create_system,
    ).manager
    assert {group for group in ("g", "CID_RMQ_SYS_x") if manager.find(group) is not None} == made
    assert manager.find("CID_RMQ_SYS_TRANS") is not None


def test_consumers_cannot_create_unlimited_groups(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", len(SYSTEM_GROUPS) + 1)
    assert groups.manager.find("a") is not None
    assert groups.manager.find("b") is None
    assert groups.manager.find("c") is None
    assert warnings_of(caplog) == [
        f"Group 'b' was not created: there are {module.GROUPS_MAX} groups"
    ]
    assert groups.manager.find("a") is not None
    put_groups(groups.manager, SubscriptionGroupConfig(group_name="by-admin"))
    assert groups.manager.find("by-admin") is not None


# -------------------------------------------------------------------------- by administrators


def test_a_group_is_created_changed_and_deleted(groups: Groups) -> None:
    manager = groups.manager
    put_groups(manager, SubscriptionGroupConfig(group_name="g", retry_max_times=3))
    groups.clock.advance(7)
    put_groups(manager, SubscriptionGroupConfig(group_name="g", consume_enable=False))
    assert manager.find("g") == SubscriptionGroupConfig(group_name="g", consume_enable=False)
    assert (counter(manager), manager.data_version.timestamp_ms) == (2, groups.clock.now_ms())
    assert groups.again().table == manager.table
    assert groups.again().data_version == manager.data_version
    assert groups.again().begin_persist() is None
    forbid(manager, "g", "T", 1, forbidden=True)
    drop_group(manager, "g")
    assert "g" not in manager.table
    assert manager.forbidden == {}
    assert (counter(manager), groups.calls.count) == (4, 4)
    assert "g" not in groups.again().table
    assert groups.again().forbidden == {}
    drop_group(manager, "g")
    assert (counter(manager), groups.calls.count) == (4, 4)


def test_a_group_without_restrictions_is_deleted_too(groups: Groups) -> None:
    put_groups(groups.manager, SubscriptionGroupConfig(group_name="g"))
    drop_group(groups.manager, "g")
    assert "g" not in groups.again().table


def test_restrictions_of_an_unknown_group_are_deleted_too(groups: Groups) -> None:
    forbid(groups.manager, "g", "T", 1, forbidden=True)
    drop_group(groups.manager, "g")
    assert groups.again().forbidden == {}


def test_attributes_are_changed_by_sign(groups: Groups) -> None:
    manager = groups.manager
    put_groups(
        manager, SubscriptionGroupConfig(group_name="g", attributes={"+priority.factor": "5"})
    )
    put_groups(manager, SubscriptionGroupConfig(group_name="g", retry_max_times=1))
    assert groups.again().table["g"] == SubscriptionGroupConfig(
        group_name="g", retry_max_times=1, attributes={"priority.factor": "5"}
    )
    put_groups(
        manager, SubscriptionGroupConfig(group_name="g", attributes={"-priority.factor": ""})
    )
    assert manager.table["g"].attributes == {}


def test_of_several_groups_all_or_none_are_accepted(groups: Groups) -> None:
    manager = groups.manager
    good = SubscriptionGroupConfig(group_name="a")
    bad = SubscriptionGroupConfig(group_name="b", attributes={"+x": "y"})
    with pytest.raises(ConfigError, match="unsupported key: x"):
        put_groups(manager, good, bad)
    assert "a" not in manager.table
    assert counter(manager) == 0
    put_groups(manager)
    assert counter(manager) == 0
    put_groups(manager, good, SubscriptionGroupConfig(group_name="c"))
    assert counter(manager) == 1
    assert {"a", "c"} < set(groups.again().table)


def test_a_change_that_cannot_be_written_is_not_applied(groups: Groups) -> None:
    manager = groups.manager
    put_groups(manager, SubscriptionGroupConfig(group_name="g"))
    forbid(manager, "g", "T", 1, forbidden=True)
    table, forbidden = dict(manager.table), dict(manager.forbidden)
    groups.disk.is_full = True
    changes: list[Callable[[], None]] = [
        lambda: put_groups(manager, SubscriptionGroupConfig(group_name="g", retry_max_times=1)),
        lambda: drop_group(manager, "g"),
        lambda: forbid(manager, "g", "T", 1, forbidden=False),
        lambda: forbid(manager, "g", "T", 0, forbidden=True),
    ]
    for change in changes:
        with pytest.raises(StoreError):
            change()
        assert manager.table == table
        assert manager.forbidden == forbidden
    assert (counter(manager), groups.calls.count) == (2, 2)


# ------------------------------------------------------------------------------- forbidden


def test_bits_are_set_and_cleared(groups: Groups) -> None:
    manager = groups.manager
    assert manager.forbidden_bits("g", "T") == 0
    forbid(manager, "g", "T", 1, forbidden=True)
    forbid(manager, "g", "T", 3, forbidden=True)
    forbid(manager, "g", "U", 1, forbidden=True)
    assert manager.forbidden_bits("g", "T") == 0b1010
    assert [manager.is_forbidden("g", "T", bit) for bit in range(4)] == [False, True, False, True]
    assert groups.again().forbidden == {"g": {"T": 0b1010, "U": 2}}
    assert (counter(manager), groups.calls.count) == (3, 3)
    forbid(manager, "g", "T", 1, forbidden=True)
    assert counter(manager) == 3
    forbid(manager, "g", "T", 1, forbidden=False)
    forbid(manager, "g", "T", 3, forbidden=False)
    assert manager.forbidden == {"g": {"U": 2}}, "other topics are unchanged"
    forbid(manager, "g", "U", 1, forbidden=False)
    assert manager.forbidden == {}
    assert groups.again().forbidden == {}


def test_negative_bits_of_a_file_forbid_nothing(groups: Groups) -> None:
    groups.path.parent.mkdir()
    groups.path.write_text('{"forbiddenTable":{"g":{"T":-1}}}', "utf-8")
    manager = groups.again()
    assert manager.forbidden_bits("g", "T") == 0
    assert not manager.is_forbidden("g", "T", 1)


# ---------------------------------------------------------------------------------- the file


def test_all_settings_are_kept(groups: Groups) -> None:
    every = SubscriptionGroupConfig(
        group_name="g",
        attributes={},
        broker_id=3,
        consume_broadcast_enable=False,
        consume_enable=False,
        consume_from_min_enable=False,
        consume_message_orderly=True,
        consume_timeout_minutes=9,
        group_retry_policy=GroupRetryPolicy(
            type=GroupRetryPolicyType.EXPONENTIAL,
            exponential_retry_policy=ExponentialRetryPolicy(initial_ms=1, max_ms=2, multiplier=3),
            customized_retry_policy=CustomizedRetryPolicy(next_ms=[1000, 5000]),
        ),
        group_sys_flag=1,
        notify_consumer_ids_changed_enable=False,
        retry_max_times=2,
        retry_queue_nums=5,
        subscription_data_set=[SimpleSubscriptionData(topic="T", expression="a", version=4)],
        which_broker_when_consume_slowly=2,
    )
    put_groups(groups.manager, every)
    assert groups.again().table["g"] == every
    assert '"next":[1000,5000]' in groups.path.read_text("utf-8")


@pytest.mark.parametrize("name", ["g", 'qu"ote', "%NAME-OF-GROUP%", "Grüppe\n", "a\\b"])
def test_a_default_group_is_written_like_any_other(groups: Groups, name: str) -> None:
    plain = SubscriptionGroupConfig(group_name=name)
    assert groups.manager._defaults.member(name, plain) == module._member(name, plain)


def test_only_a_default_group_of_that_name_is_written_from_the_template(groups: Groups) -> None:
    member = groups.manager._defaults.member
    assert member("g", SubscriptionGroupConfig(group_name="g", retry_max_times=3)) is None
    assert member("g", SubscriptionGroupConfig(group_name="other")) is None
    assert member("g", SubscriptionGroupConfig(group_name="g", attributes={"a": "b"})) is None


def test_no_text_is_cached_for_groups_created_by_consumers(groups: Groups) -> None:
    made = [groups.manager.find(f"g{number}") for number in range(1_000)]
    put_groups(groups.manager, SubscriptionGroupConfig(group_name="own", retry_max_times=3))
    groups.manager.persist()
    assert len(groups.manager._texts) == 1
    assert len({id(each.attributes) for each in made if each}) == 1
    assert len({id(each.group_retry_policy) for each in made if each}) == 1
    assert groups.again().table == groups.manager.table


def test_settings_missing_in_the_file_come_from_the_defaults(groups: Groups) -> None:
    groups.path.parent.mkdir()
    groups.path.write_text(
        '{"dataVersion":{"counter":4},"subscriptionGroupTable":{"g":{"retryMaxTimes":"3",'
        '"groupRetryPolicy":null,"later":1}}}',
        "utf-8",
    )
    manager = groups.again()
    assert manager.table["g"] == SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    assert counter(manager) == 4
    assert "TOOLS_CONSUMER" in manager.table
