"""Describes what an acknowledged message survives.

Owns the sentences of the startup banner, so that they always match the settings in force. The
promises themselves, each with its test, are in ``docs/internals/durability.md``.
"""

from __future__ import annotations

from msgspec import Struct

from roquet.store.config import MessageStoreConfig

__all__ = ["Durability", "durability_of"]


class Durability(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is guaranteed for a message once its send was acknowledged.

    Attributes:
        flush_disk_type: The setting that decides it.
        process_end: What survives if the process ends at any moment.
        power_cut: What survives if the machine loses power or its system crashes.
        disk_loss: What survives if the disk is lost.
    """

    flush_disk_type: str
    process_end: str
    power_cut: str
    disk_loss: str = "everything on it is lost: there is no replica"


def durability_of(store: MessageStoreConfig) -> Durability:
    """Return what the settings of a store guarantee."""
    kind = store.flush_disk_type.value
    if store.is_sync_flush:
        return Durability(
            flush_disk_type=kind,
            process_end="nothing acknowledged is lost",
            power_cut="nothing acknowledged is lost: it was on disk before the response",
        )
    window = (
        f"the last {_seconds(store.flush_commit_log_interval_ms)} may be lost "
        f"(up to {_seconds(store.flush_commit_log_thorough_interval_ms)} if little was sent)"
    )
    process_end = "nothing acknowledged is lost"
    if store.uses_transient_pool:
        process_end = f"the last {_seconds(store.commit_thorough_interval_ms)} may be lost"
    return Durability(flush_disk_type=kind, process_end=process_end, power_cut=window)


def _seconds(time_ms: int) -> str:
    return f"{time_ms / 1000:g} s"
