"""The key-value config that name servers keep for the cluster.

Owns :class:`KvValues`. Name servers do not share their state, so changes go to all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from roquet.admin.calls import Calls
from roquet.errors import BadName
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.headers.base import decode_header

__all__ = ["ORDER_NAMESPACE", "KvValues"]

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Lists the queues of ordered topics, as ``broker:count`` separated by semicolons."""


class KvValues:
    """The key-value config of name servers; ``admin.kv``.

    Example:
        values = await admin.kv.items("colours")
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def get(self, namespace: str, key: str) -> str | None:
        """Return a value; ``None`` if there is none.

        Example:
            value = await admin.kv.get("colours", "sky")
        """
        header = headers.KVKeyRequestHeader(namespace=namespace, key=key)
        answer = await self._calls.name_server_if_found(RequestCode.GET_KV_CONFIG, header)
        if answer is None:
            return None
        return decode_header(headers.GetKVConfigResponseHeader, answer.ext_fields).value

    async def items(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace.

        Example:
            ordered = await admin.kv.items("ORDER_TOPIC_CONFIG")
        """
        header = headers.GetKVListByNamespaceRequestHeader(namespace=namespace)
        answer = await self._calls.name_server_if_found(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        return {} if answer is None else decode_body(KVTable, answer.body).table

    async def set(self, namespace: str, key: str, value: str) -> None:
        """Set a value on every name server.

        Raises:
            BadName: The namespace, the key or the value is blank.
            BrokersFailed: The request failed on some name servers.

        Example:
            await admin.kv.set("colours", "sky", "blue")
        """
        for name, text in (("namespace", namespace), ("key", key), ("value", value)):
            if not text.strip():
                raise BadName(f"The {name} is blank", hint="Set namespace, key and value.")
        header = headers.PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        told = await self._calls.name_servers(RequestCode.PUT_KV_CONFIG, header)
        told.complete("Setting the value")

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value on every name server; does nothing if there is none.

        Raises:
            BrokersFailed: The request failed on some name servers.

        Example:
            await admin.kv.delete("colours", "sky")
        """
        header = headers.KVKeyRequestHeader(namespace=namespace, key=key)
        told = await self._calls.name_servers(RequestCode.DELETE_KV_CONFIG, header)
        told.complete("Deleting the value")

    async def set_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """List the queues of an ordered topic; entries of other brokers are kept.

        Producers then see these queues even while their broker is unreachable, so that messages
        with one key never go to another queue.

        Raises:
            BrokersFailed: The request failed on some name servers.

        Example:
            await admin.kv.set_order("Orders", {"dev": 4})
        """
        known = parse_order(await self.get(ORDER_NAMESPACE, topic) or "")
        text = ";".join(f"{name}:{count}" for name, count in {**known, **queues}.items())
        await self.set(ORDER_NAMESPACE, topic, text)


def parse_order(text: str) -> dict[str, str]:
    """Parse the queue counts of an ordered topic.

    Example:
        >>> parse_order("broker-a:4;broker-b:8")
        {'broker-a': '4', 'broker-b': '8'}
    """
    parts = (part.partition(":") for part in text.split(";") if part.strip())
    return {name.strip(): count.strip() for name, _, count in parts}
