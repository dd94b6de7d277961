"""Messages as values.

Owns two types: :class:`BrokerMessage`, which a broker passes to the store, and
:class:`StoredMessage`, the content of a record in the log. Both keep the body as stored (still
compressed) and the properties as bytes; maps are built on demand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from roquet.model import properties as prop
from roquet.model.host import LOOPBACK, Host
from roquet.model.message_id import offset_message_id


class BrokerMessage(NamedTuple):
    """One message to append; upstream's MessageExtBrokerInner.

    A tuple, because compiled code reads its fields by position. ``properties`` is the stored
    form (see :mod:`roquet.model.properties`). The store assigns queue offset, physical offset and
    store timestamp.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = LOOPBACK
    store_host: Host = LOOPBACK
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True


class BatchMessage(NamedTuple):
    """Messages of one topic and queue in the encoded form of a batch send (format/batch.py)."""

    topic: str
    queue_id: int
    body: bytes
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: Host = LOOPBACK
    store_host: Host = LOOPBACK
    reconsume_times: int = 0
    wait_store_ok: bool = True

    @classmethod
    def of(cls, message: BrokerMessage) -> BatchMessage:
        """A batch with the fields of a message that both have."""
        return cls._make(getattr(message, name) for name in cls._fields)


@dataclass(slots=True, frozen=True)
class StoredMessage:
    """One record of the log; upstream's MessageExt."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    body: bytes
    properties_data: bytes
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    _properties: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def properties(self) -> dict[str, str]:
        """The properties as a map."""
        if not self._properties and self.properties_data:
            self._properties.update(prop.decode_properties(self.properties_data))
        return self._properties

    @property
    def tags(self) -> str | None:
        """TAGS, if any."""
        return self.properties.get(prop.TAGS)

    @property
    def keys(self) -> list[str]:
        """The words of KEYS."""
        return self.properties.get(prop.KEYS, "").split()

    @property
    def unique_key(self) -> str | None:
        """The producer's id, if any."""
        return self.properties.get(prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX)

    @property
    def offset_message_id(self) -> str:
        """The broker's id."""
        return offset_message_id(self.store_host, self.physical_offset)
