"""The reported durability follows from the settings."""

from __future__ import annotations

from roquet.broker.durability import durability_of
from roquet.store.config import BrokerRole, FlushDiskType, MessageStoreConfig


def test_async_flush_names_what_a_power_cut_may_take() -> None:
    found = durability_of(MessageStoreConfig(flush_commit_log_interval_ms=700))
    assert found.flush_disk_type == "ASYNC_FLUSH"
    assert found.process_end == "nothing acknowledged is lost"
    assert found.power_cut == "the last 0.7 s may be lost (up to 10 s if little was sent)"


def test_sync_flush_loses_nothing() -> None:
    found = durability_of(MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH))
    assert "nothing" in found.process_end
    assert "nothing" in found.power_cut
    assert "lost" in found.disk_loss


def test_buffers_of_the_process_are_lost_with_it() -> None:
    found = durability_of(MessageStoreConfig(transient_store_pool=True))
    assert found.process_end == "the last 0.2 s may be lost"


def test_a_sync_master_loses_nothing_acknowledged_with_its_disk() -> None:
    found = durability_of(MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER))
    assert found.broker_role == "SYNC_MASTER"
    assert found.disk_loss == "nothing acknowledged is lost: a slave had it before the response"
    assert found.power_cut.endswith("but a slave has it")
    alone = MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER, auto_in_sync_replicas=True)
    assert "unless no slave was in sync" in durability_of(alone).disk_loss


def test_a_slave_names_its_master_as_the_other_copy() -> None:
    found = durability_of(MessageStoreConfig(broker_role=BrokerRole.SLAVE))
    assert "master" in found.disk_loss
