"""Describes what an acknowledged message survives.

Owns the sentences of the startup banner, so that they always match the settings in force. The
promises themselves, each with its test, are in ``docs/internals/durability.md``.
"""

from __future__ import annotations

from msgspec import Struct

from roquet.store.config import BrokerRole, MessageStoreConfig

__all__ = ["Durability", "durability_of"]


class Durability(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is guaranteed for a message once its send was acknowledged.

    Attributes:
        flush_disk_type: The setting that decides it.
        broker_role: The role, which decides it too.
        process_end: What survives if the process ends at any moment.
        power_cut: What survives if the machine loses power or its system crashes.
        disk_loss: What survives if the disk is lost.
    """

    flush_disk_type: str
    broker_role: str
    process_end: str
    power_cut: str
    disk_loss: str


_NOTHING = "nothing acknowledged is lost"
_DISK_LOSS = {
    BrokerRole.ASYNC_MASTER: "everything on it that no slave has copied yet is lost",
    BrokerRole.SYNC_MASTER: f"{_NOTHING}: a slave had it before the response",
    BrokerRole.SLAVE: "nothing that the master still has is lost",
}


def durability_of(store: MessageStoreConfig) -> Durability:
    """Return what the settings of a store guarantee."""
    process_end, power_cut = _on_this_machine(store)
    role = store.broker_role
    disk_loss = _DISK_LOSS[role]
    if role is BrokerRole.SYNC_MASTER:
        if not store.is_sync_flush:
            power_cut = f"{power_cut}, but a slave has it"
        if store.auto_in_sync_replicas and store.min_in_sync_replicas == 1:
            disk_loss = f"{disk_loss}, unless no slave was in sync (enableAutoInSyncReplicas)"
    return Durability(
        flush_disk_type=store.flush_disk_type.value,
        broker_role=role.value,
        process_end=process_end,
        power_cut=power_cut,
        disk_loss=disk_loss,
    )


def _on_this_machine(store: MessageStoreConfig) -> tuple[str, str]:
    """What the end of the process and a power cut leave on this machine's disk."""
    if store.is_sync_flush:
        return _NOTHING, f"{_NOTHING}: it was on disk before the response"
    window = (
        f"the last {_seconds(store.flush_commit_log_interval_ms)} may be lost "
        f"(up to {_seconds(store.flush_commit_log_thorough_interval_ms)} if little was sent)"
    )
    if store.uses_transient_pool:
        return f"the last {_seconds(store.commit_thorough_interval_ms)} may be lost", window
    return _NOTHING, window


def _seconds(time_ms: int) -> str:
    return f"{time_ms / 1000:g} s"
