"""The settings of a producer.

Owns :class:`ProducerOptions` and the same names as keyword arguments, :class:`ProducerSettings`.
The defaults are those of Apache RocketMQ's Java client, except that the number of sends in flight
is always bounded.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from msgspec import Struct

from roquet.client.compression import Compression, compress
from roquet.errors import ConfigError
from roquet.model.topic import TRACE_TOPIC

__all__ = ["ProducerOptions", "ProducerSettings"]

CompressionName: TypeAlias = Compression | Literal["zlib", "lz4", "zstd"]

LINGER_MS_MAX = 30_000
LINGER_BYTES_MAX = 2 << 20


class ProducerOptions(Struct, frozen=True, kw_only=True):
    """How a producer sends.

    Attributes:
        send_timeout_ms: How long a send may take, with all its attempts.
        attempt_timeout_ms: How long one attempt may take while others may follow; ``None`` allows
            all the remaining time.
        retry_times: How often a refused send is retried, on another broker if there is one.
            Unreachable brokers are retried until the timeout; with 0, never.
        retry_another_broker: Whether a message that is stored, but less safely than configured, is
            sent to another broker too.
        send_latency_fault: Whether brokers that were slow or failed are avoided for a while.
        max_in_flight: How many sends may be in flight; further ones wait.
        max_in_flight_bytes: How many body bytes may be in flight; further sends wait.
        compression: The compression of long bodies.
        compress_over_bytes: Bodies of this length and more are compressed.
        compress_level: The compression level, from 1 to 9.
        max_message_bytes: The longest body, and the longest batch, that may be sent.
        linger_ms: How long a message may wait to be sent with others as one batch; 0 sends each on
            its own.
        linger_bytes: A batch with this many body bytes is sent at once.
        trace: Whether sent messages are traced.
        trace_topic: The trace topic.

    Example:
        >>> ProducerOptions().retry_times
        2
    """

    send_timeout_ms: int = 3_000
    attempt_timeout_ms: int | None = None
    retry_times: int = 2
    retry_another_broker: bool = False
    send_latency_fault: bool = False
    max_in_flight: int = 1_024
    max_in_flight_bytes: int = 100 << 20
    compression: CompressionName = Compression.ZLIB
    compress_over_bytes: int = 4_096
    compress_level: int = 5
    max_message_bytes: int = 4 << 20
    linger_ms: int = 0
    linger_bytes: int = 32 << 10
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    @property
    def compressor(self) -> Compression:
        """The compression of long bodies.

        Example:
            assert ProducerOptions(compression="zstd").compressor is Compression.ZSTD
        """
        return Compression(self.compression)

    def check(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: A number is out of range, or the compression is unknown or its package is
                not installed.

        Example:
            >>> try:
            ...     ProducerOptions(retry_times=-1).check()
            ... except ConfigError as error:
            ...     print(error.message)
            retry_times is -1
        """
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(
                    f"{name} is {value}", hint=f"It must be a number from {least} to {most}."
                )
        try:
            kind = self.compressor
        except ValueError:
            raise ConfigError(
                f"compression is {self.compression!r}", hint="It must be zlib, lz4 or zstd."
            ) from None
        compress(b"tried before the first message needs it", kind, level=self.compress_level)


class ProducerSettings(TypedDict, total=False):
    """The fields of :class:`ProducerOptions` as keyword arguments."""

    send_timeout_ms: int
    attempt_timeout_ms: int | None
    retry_times: int
    retry_another_broker: bool
    send_latency_fault: bool
    max_in_flight: int
    max_in_flight_bytes: int
    compression: CompressionName
    compress_over_bytes: int
    compress_level: int
    max_message_bytes: int
    linger_ms: int
    linger_bytes: int
    trace: bool
    trace_topic: str


_MOST = 2**31 - 1

_RANGES = (
    ("send_timeout_ms", 1, _MOST),
    ("attempt_timeout_ms", 1, _MOST),
    ("retry_times", 0, _MOST),
    ("max_in_flight", 1, _MOST),
    ("max_in_flight_bytes", 1, 2**63 - 1),
    ("compress_over_bytes", 1, _MOST),
    ("compress_level", 1, 9),
    ("max_message_bytes", 1, _MOST),
    ("linger_ms", 0, LINGER_MS_MAX),
    ("linger_bytes", 1, LINGER_BYTES_MAX),
)
