"""The name servers of a cluster, asked one after the other.

Owns which of them is asked. One of them, chosen by chance, is asked as long as it answers; after
that the next one. All know the same, more or less, so one answer is enough.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from roquet.client.answers import refused
from roquet.errors import ClientError, ConnectFailed
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header
from roquet.runtime.randomness import Randomness

__all__ = ["NO_NAME_SERVER", "NameServers"]

log = logging.getLogger(__name__)

NO_NAME_SERVER = "no_name_server"
"""The code of the error that none of them answers."""


class NameServers:
    """The name servers of a cluster.

    Args:
        addresses: Where they are; at least one.
        remoting: What asks them.
        randomness: Which is asked first.
        timeout_ms: How long each of them may take.
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
        """Ask them in turn until one answers, whatever the response code is.

        Raises:
            ConnectFailed: None of them answers.
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
                log.info("Name server %s does not answer: %s", address, error.message)
                continue
            self._current = index
            return answer
        raise ConnectFailed(
            "No name server answers",
            code=NO_NAME_SERVER,
            detail="; ".join(reasons),
            hint="Are the addresses right, and is a name server running there?",
        )

    @property
    def current(self) -> str:
        """Who answered last, at the beginning of a sentence."""
        return f"Name server {self.addresses[self._current]}"

    async def ask(
        self, code: int, header: Header | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        """As :meth:`invoke`; an answer that is not SUCCESS is an error.

        Raises:
            ConnectFailed: None of them answers.
            BrokerRefused: The one that answered refused.
        """
        answer = await self.invoke(code, header, body=body)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer, code, self.current)
        return answer
