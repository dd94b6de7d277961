"""What a command of the admin tool printed, without what two brokers cannot have in common.

Blanks are one, because columns are as wide as names. Times, ports, process ids and message ids
become words, so that everything else has to be identical.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.interop.javaclient import AdminOutcome

__all__ = ["Drop", "Mask", "shape", "shape_exactly", "shape_text"]

Mask = tuple[str, str]
"""A pattern and what stands in its place."""

Drop = tuple[str, str]
"""A pattern of lines that do not count, and why they do not."""

_USUAL: Sequence[Mask] = (
    (r"\b\d{1,3}(\.\d{1,3}){3}@[\w#@-]+", "<client>"),
    (r"\b([0-9A-F]{56}|[0-9A-F]{32})\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,.:]\d{1,3})?", "<time>"),
    (r"\b1[6-9]\d{11}\b", "<millis>"),
    (r"\b127\.0\.0\.1:\d+", "<host>"),
)

_MOMENTS: Sequence[Mask] = ((r"\b1[6-9]\d{11}\b", "<millis>"),)

_TRACE = re.compile(r"\s+at |\s*\.\.\. \d+ more")


def shape(
    outcome: AdminOutcome,
    names: Mapping[str, str],
    masks: Sequence[Mask] = (),
    drops: Sequence[Drop] = (),
) -> list[str]:
    """The lines of an outcome that have to be the same of both sides.

    Args:
        outcome: What the command printed.
        names: Texts of one side by the word that stands for them.
        masks: What else may differ.
        drops: Lines to ignore.
    """
    failures = [line for line in outcome.failures.splitlines() if not _TRACE.match(line)]
    lines = [*outcome.printed.splitlines(), *(f"! {line}" for line in failures)]
    shaped = [shape_text(line, names, masks) for line in lines]
    return [line for line in shaped if not any(re.search(each, line) for each, _ in drops)]


def shape_exactly(
    outcome: AdminOutcome, masks: Sequence[Mask] = (), drops: Sequence[Drop] = ()
) -> list[str]:
    """The lines of an outcome, blanks and all; only what changes by the minute is masked."""
    failures = [line for line in outcome.failures.splitlines() if not _TRACE.match(line)]
    lines = [*outcome.printed.splitlines(), *(f"! {line}" for line in failures)]
    for pattern, replacement in (*masks, *_MOMENTS):
        lines = [re.sub(pattern, replacement, line) for line in lines]
    return [line for line in lines if not any(re.search(each, line) for each, _ in drops)]


def shape_text(line: str, names: Mapping[str, str], masks: Sequence[Mask] = ()) -> str:
    """A line, or another text, without what may differ."""
    for word, text in names.items():
        line = line.replace(text, f"<{word}>")
    line = " ".join(line.split())
    for pattern, replacement in (*masks, *_USUAL):
        line = re.sub(pattern, replacement, line)
    return line
