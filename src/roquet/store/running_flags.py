"""Whether the store may read and write at the moment, and why not.

Owns the reasons for refusing writes or reads. Upstream keeps them as bits; here each reason is a
named flag, so that a refusal can say which one it was.
"""

from __future__ import annotations

from enum import Flag, auto


class RunningFlag(Flag):
    """Reasons, each set and cleared by its owner."""

    NOT_READABLE = auto()
    NOT_WRITEABLE = auto()
    LOGICS_QUEUE_ERROR = auto()
    INDEX_FILE_ERROR = auto()
    DISK_FULL = auto()
    LOGIC_DISK_FULL = auto()
    FENCED = auto()
    FLUSH_FAILED = auto()
    SHUT_DOWN = auto()


_STOPS_READS = (RunningFlag.NOT_READABLE | RunningFlag.SHUT_DOWN).value
_STOPS_WRITES = (
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.LOGICS_QUEUE_ERROR
    | RunningFlag.INDEX_FILE_ERROR
    | RunningFlag.DISK_FULL
    | RunningFlag.LOGIC_DISK_FULL
    | RunningFlag.FENCED
    | RunningFlag.FLUSH_FAILED
    | RunningFlag.SHUT_DOWN
).value


class RunningFlags:
    """The flags that are set."""

    def __init__(self) -> None:
        """Start with none."""
        self._bits = 0

    def set(self, flag: RunningFlag) -> None:
        """Set a flag."""
        self._bits |= flag.value

    def clear(self, flag: RunningFlag) -> None:
        """Clear a flag."""
        if self._bits:
            self._bits &= ~flag.value

    def has(self, flag: RunningFlag) -> bool:
        """Whether a flag is set."""
        return bool(self._bits & flag.value)

    @property
    def is_readable(self) -> bool:
        """Whether reads are served; they are despite a full disk or a failed flush."""
        return not self._bits & _STOPS_READS

    @property
    def is_writeable(self) -> bool:
        """Whether appends are accepted."""
        return not self._bits & _STOPS_WRITES

    def reasons(self) -> list[str]:
        """Names of the flags that are set."""
        return [flag.name for flag in RunningFlag if flag.value & self._bits and flag.name]
