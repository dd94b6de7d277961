"""The name servers of a cluster, tried one after the other.

One of them, chosen at random, is used as long as it responds; then the next one. They hold roughly
the same data, so one response is enough.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from roquet.client.response_errors import refused
from roquet.errors import ClientError, ConnectFailed
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.runtime.randomness import Randomness

__all__ = ["NO_NAME_SERVER", "NameServers"]

log = logging.getLogger(__name__)

NO_NAME_SERVER = "no_name_server"
"""The code of the error raised when none of them responds."""


class NameServers:
    """The name servers of a cluster.

    Args:
        addresses: Their addresses; at least one.
        remoting: Sends the requests.
        randomness: Chooses the first one.
        timeout_ms: The timeout for each of them.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        remoting: RemotingClient,
        *,
        randomness: Randomness,
        timeout_ms: int,
    ) -> None:
        self.addresses = tuple(addresses)
        self._remoting = remoting
        self._timeout_ms = timeout_ms
        self._current = randomness.randrange(len(self.addresses))

    async def invoke(
        self, code: int, header: Header | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request to each in turn until one responds, with whatever response code.

        Raises:
            ConnectFailed: None of them responds.
        """
        reasons: list[str] = []
        count = len(self.addresses)
        first = self._current
        for step in range(count):
            index = (first + step) % count
            address = self.addresses[index]
            try:
                answer = await self._remoting.invoke(
                    address, code, header, body=body, timeout_ms=self._timeout_ms
                )
            except ClientError as error:
                if not error.retriable:
                    raise
                why = f" ({error.detail})" if error.detail else ""
                reasons.append(f"{address}: {error.message}{why}")
                log.info("Name server %s does not respond: %s", address, error.message)
                continue
            self._current = index
            return answer
        raise ConnectFailed(
            "No name server responds",
            code=NO_NAME_SERVER,
            detail="; ".join(reasons),
            hint="Are the addresses right, and is a name server running there?",
        )

    @property
    def current(self) -> str:
        """The server that responded last, as the beginning of a sentence."""
        return f"Name server {self.addresses[self._current]}"

    async def ask(
        self, code: int, header: Header | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        """As :meth:`invoke`; a response other than SUCCESS is an error.

        Raises:
            ConnectFailed: None of them responds.
            BrokerRefused: The one that responded refused.
        """
        answer = await self.invoke(code, header, body=body)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer, code, self.current)
        return answer
