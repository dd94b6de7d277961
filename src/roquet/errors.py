"""The errors that Roquet raises, as one tree.

.. code-block:: text

    RoquetError
    ├── ConfigError
    ├── ProtocolError
    ├── StoreError
    │   ├── CorruptRecord
    │   ├── DiskFull
    │   ├── StoreLocked
    │   ├── StoreClosed
    │   ├── StoreDamaged
    │   ├── NotAStore
    │   ├── FlushFailed
    │   └── OutOfResources
    ├── AuthError
    ├── SparkError
    │   ├── SparkOptionError
    │   ├── SparkSchemaError
    │   ├── JavaMissing
    │   ├── SparkMissing
    │   └── DataLost
    ├── WrongThread
    └── ClientError
        ├── ConnectFailed
        ├── SendFailed
        │   └── AnswerLost
        ├── RequestTimeout
        ├── ClientClosed
        ├── BadName
        ├── BadExpression
        ├── BadMessage
        │   └── MessageTooLarge
        ├── BadBody
        ├── NoRoute
        ├── PartlySent
        ├── NotFound
        ├── BrokersFailed
        ├── OffsetOutOfRange
        └── BrokerRefused
            ├── BrokerBusy
            └── PermissionRefused

Every error has a message that stands alone; a ``detail`` with the facts (path, offset, numbers)
and a ``hint`` with what to do are added where they help. Code that retries checks ``retriable`` and
never lists classes. Any layer may import this module; it imports no other module of Roquet.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

__all__ = [
    "AnswerLost",
    "AuthError",
    "BadBody",
    "BadExpression",
    "BadMessage",
    "BadName",
    "BrokerBusy",
    "BrokerRefused",
    "BrokersFailed",
    "ClientClosed",
    "ClientError",
    "ConfigError",
    "ConnectFailed",
    "CorruptRecord",
    "DataLost",
    "DiskFull",
    "FlushFailed",
    "JavaMissing",
    "MessageTooLarge",
    "NoRoute",
    "NotAStore",
    "NotFound",
    "OffsetOutOfRange",
    "OutOfResources",
    "PartlySent",
    "PermissionRefused",
    "ProtocolError",
    "RequestTimeout",
    "RoquetError",
    "SendFailed",
    "SparkError",
    "SparkMissing",
    "SparkOptionError",
    "SparkSchemaError",
    "StoreClosed",
    "StoreDamaged",
    "StoreError",
    "StoreLocked",
    "WrongThread",
]


class RoquetError(Exception):
    """The base class of all errors that Roquet raises.

    Args:
        message: What went wrong, in one sentence without a line break.
        code: A stable name for programs; by default the class's own.
        detail: The facts: path, offset, expected and found values.
        hint: What the reader can do about it.

    Example:
        >>> print(DiskFull("The disk is full.", hint="Free some space."))
        The disk is full.
        HINT: Free some space.
    """

    default_code: ClassVar[str] = "error"
    """The ``code`` of an error that is raised without one."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed later without any change."""

    exit_code: ClassVar[int] = 1
    """The exit code of a command that fails with this error.

    1 failure, 2 bad usage or configuration, 3 unreachable, 4 refused, 5 the disk failed.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"DETAIL: {self.detail}")
        if self.hint:
            lines.append(f"HINT: {self.hint}")
        return "\n".join(lines)


class ConfigError(RoquetError):
    """A configuration key or value cannot be used."""

    default_code = "config"
    exit_code = 2


class ProtocolError(RoquetError):
    """Bytes on the wire, or values meant for it, break the protocol."""

    default_code = "protocol"


class StoreError(RoquetError):
    """The message store cannot do what was asked."""

    default_code = "store"


class CorruptRecord(StoreError):
    """Bytes in a store file are not the expected record."""

    default_code = "corrupt_record"


class DiskFull(StoreError):
    """There is no space for the write; reads still work, and retention may free some space."""

    default_code = "disk_full"
    retriable = True


class StoreLocked(StoreError):
    """Another process has the store directory open."""

    default_code = "store_locked"


class StoreClosed(StoreError):
    """The store was closed, or is shutting down."""

    default_code = "store_closed"


class StoreDamaged(StoreError):
    """The files of a store contradict each other; continuing could lose messages."""

    default_code = "store_damaged"


class NotAStore(StoreError):
    """The directory does not exist or does not hold a message store."""

    default_code = "not_a_store"
    exit_code = 2


class FlushFailed(StoreError):
    """The kernel could not write data to the disk; nothing after it may be acknowledged."""

    default_code = "flush_failed"
    exit_code = 5


class OutOfResources(StoreError):
    """The process or the machine has no descriptors or memory left; nothing is wrong on disk."""

    default_code = "out_of_resources"
    retriable = True


class AuthError(RoquetError):
    """The caller is unknown or may not do this."""

    default_code = "auth"
    exit_code = 4


class SparkError(RoquetError):
    """A Spark source, sink or pipeline cannot do what was asked."""

    default_code = "spark"


class SparkOptionError(SparkError):
    """An option of a source or sink is unknown, or has a value that cannot be used."""

    default_code = "spark_option"
    exit_code = 2


class SparkSchemaError(SparkError):
    """A source or sink has no such column, or it has another type."""

    default_code = "spark_schema"
    exit_code = 2


class JavaMissing(SparkError):
    """Spark needs Java, which is not installed."""

    default_code = "java_missing"


class SparkMissing(SparkError):
    """The package ``pyspark`` is not installed, or is too old."""

    default_code = "spark_missing"


class DataLost(SparkError):
    """Messages to be read no longer exist."""

    default_code = "data_lost"


class WrongThread(RoquetError):
    """A blocking call was made where it could never return.

    That is on the event loop's own thread, or in a process forked from the one that runs the loop.
    """

    default_code = "wrong_thread"


class ClientError(RoquetError):
    """A client's request failed, or was refused."""

    default_code = "client"


class ConnectFailed(ClientError):
    """The connection to the peer could not be opened; the request was not sent."""

    default_code = "connect_failed"
    retriable = True
    exit_code = 3


class SendFailed(ClientError):
    """The request could not be sent, or the connection broke before the response came."""

    default_code = "send_failed"
    retriable = True
    exit_code = 3


class AnswerLost(SendFailed):
    """A request was sent and its response lost; the peer may have carried it out."""

    default_code = "answer_lost"


class RequestTimeout(ClientError):
    """The peer did not respond in time; it may have carried out the request."""

    default_code = "request_timeout"
    retriable = True
    exit_code = 3


class ClientClosed(ClientError):
    """The producer, consumer or admin was closed, or was never started."""

    default_code = "client_closed"


class BadName(ClientError):
    """A topic or group cannot have this name."""

    default_code = "bad_name"
    exit_code = 2


class BadExpression(ClientError):
    """A filter expression cannot be parsed."""

    default_code = "bad_expression"
    exit_code = 2


class BadMessage(ClientError):
    """A message is invalid; nothing was sent."""

    default_code = "bad_message"
    exit_code = 2


class MessageTooLarge(BadMessage):
    """The body or the properties exceed the size limit."""

    default_code = "message_too_large"


class BadBody(ClientError):
    """The body of a received message cannot be decompressed."""

    default_code = "bad_body_bytes"


class NoRoute(ClientError):
    """The name servers know no broker that has the topic."""

    default_code = "no_route"
    exit_code = 3


class PartlySent(ClientError):
    """Some messages of a batch are stored, the others are not; the cause says why.

    Args:
        message: What happened.
        sent: How many messages, counted from the first, are stored.
        code: A stable name for programs; by default the class's own.
        detail: The facts.
        hint: What the reader can do about it.
    """

    default_code = "partly_sent"

    def __init__(
        self,
        message: str,
        *,
        sent: int = 0,
        code: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, detail=detail, hint=hint)
        self.sent = sent


class NotFound(ClientError):
    """There is no such cluster, broker, group, message or value."""

    default_code = "not_found"


class BrokersFailed(ClientError):
    """A request failed on some of the brokers or name servers.

    Args:
        message: What failed.
        failures: The error by broker name or name server address.
        succeeded: The brokers or name servers that succeeded.
        code: A stable name for programs; by default the class's own.
        detail: The facts.
        hint: What the reader can do about it.
    """

    default_code = "brokers_failed"
    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        failures: Mapping[str, RoquetError] | None = None,
        succeeded: Sequence[str] = (),
        code: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, detail=detail, hint=hint)
        self.failures = dict(failures or {})
        self.succeeded = tuple(succeeded)


class OffsetOutOfRange(ClientError):
    """A queue has no message at an offset: it was removed, or does not exist yet."""

    default_code = "offset_out_of_range"


class BrokerRefused(ClientError):
    """A broker or name server refused the request.

    Args:
        message: What was refused.
        response_code: The code of the response.
        remark: The remark of the response.
        code: A stable name for programs; by default the class's own.
        detail: The facts.
        hint: What the reader can do about it.
    """

    default_code = "broker_refused"

    def __init__(
        self,
        message: str,
        *,
        response_code: int = 1,
        remark: str = "",
        code: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, detail=detail, hint=hint)
        self.response_code = response_code
        self.remark = remark


class BrokerBusy(BrokerRefused):
    """A broker cannot do this now; another broker, or the same one later, may."""

    default_code = "broker_busy"
    retriable = True


class PermissionRefused(BrokerRefused):
    """The caller, or the topic, lacks the permission."""

    default_code = "permission_refused"
    exit_code = 4
