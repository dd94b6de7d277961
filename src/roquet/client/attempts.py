"""The attempts of one send: their number, their outcomes, and whether to retry.

=========================================== ====================================================
what happened                               what follows
=========================================== ====================================================
no connection, broker not known, nothing    another broker at once, or the same after a wait that
could be sent                               gets longer, until the time is used up
connection lost after the message was sent  the same, as the next of ``1 + retry_times`` attempts
no response in time                         the next of ``1 + retry_times`` attempts
a response of ``RETRY_RESPONSE_CODES``      the next of ``1 + retry_times`` attempts
any other error response                    the error, at once
stored, less safely than configured         the result, or with ``retry_another_broker`` the next
                                            of ``1 + retry_times`` attempts
=========================================== ====================================================

Whether the message is stored is not known after a lost connection or a missing response, so it may
be stored more than once then, but never more often than ``1 + retry_times``. With ``retry_times=0``
nothing is retried.
"""

from __future__ import annotations

from roquet.client.deadline import BackOff
from roquet.client.message import SendResult
from roquet.client.response_errors import RETRY_RESPONSE_CODES
from roquet.errors import (
    AnswerLost,
    BrokerRefused,
    ClientError,
    ConnectFailed,
    NoRoute,
    SendFailed,
)
from roquet.runtime.randomness import Randomness

__all__ = ["Attempts"]

_UNREACHABLE = (ConnectFailed, SendFailed, NoRoute)


class Attempts:
    """The attempts of a send so far.

    Args:
        retry_times: How often a send that brokers refuse is retried.
        randomness: Varies the waits.

    Attributes:
        failure: Why the last attempt failed.
        result: The result of the last attempt that stored the message less safely than configured.
        last_broker: The broker of the last attempt.
    """

    __slots__ = (
        "_brokers",
        "_count",
        "_left",
        "_randomness",
        "_retries",
        "_unreachable",
        "back_off",
        "failure",
        "last_broker",
        "result",
    )

    def __init__(self, retry_times: int, randomness: Randomness) -> None:
        self._retries = retry_times > 0
        self._left = 1 + retry_times
        self._randomness = randomness
        self._count = 0
        self._brokers: dict[str, None] = {}
        self._unreachable: set[str] = set()
        self.back_off: BackOff | None = None
        self.failure: ClientError | None = None
        self.result: SendResult | None = None
        self.last_broker: str | None = None

    @property
    def is_last(self) -> bool:
        """Whether the next attempt is the last one, if it is refused."""
        return self._left <= 1

    @property
    def is_waiting(self) -> bool:
        """Whether no broker was reachable or the last connection was lost, so waiting may help."""
        return self._retries and isinstance(self.failure, _UNREACHABLE)

    def has_to_wait(self, broker_name: str) -> bool:
        """Return whether a broker was just found unreachable, or its connection was lost."""
        return broker_name in self._unreachable

    def next_wait_ms(self) -> int:
        """Return how long to wait before retrying unreachable brokers."""
        self._unreachable.clear()
        if self.back_off is None:
            self.back_off = BackOff(self._randomness)
        return self.back_off.next_ms()

    def failed(self, broker_name: str, error: ClientError) -> bool:
        """Record a failed attempt; returns whether another one follows."""
        self._note(broker_name)
        self.failure = error
        if isinstance(error, _UNREACHABLE):
            self._unreachable.add(broker_name)
            if not isinstance(error, AnswerLost):
                return self._retries
        self._left -= 1
        if isinstance(error, BrokerRefused) and error.response_code not in RETRY_RESPONSE_CODES:
            return False
        return self._left > 0

    def stored(self, broker_name: str, result: SendResult) -> bool:
        """Record a result that is less safe; returns whether another attempt follows."""
        self._note(broker_name)
        self.result = result
        self._left -= 1
        return self._left > 0

    def error(self) -> ClientError:
        """Return the error of a send that stored nothing."""
        error = self.failure
        assert error is not None
        if self._count > 1:
            attempts = f"{self._count} attempts: {', '.join(self._brokers)}"
            error.detail = f"{error.detail}; {attempts}" if error.detail else attempts
        return error

    def _note(self, broker_name: str) -> None:
        self._count += 1
        self._brokers[broker_name] = None
        self.last_broker = broker_name
