#!/usr/bin/env python3
"""Generates declarations for compiled code: layouts, limits, flags, codes, and the plain send rule.

Writes the files of :data:`FILES` from the tables and constants of Python modules; with ``--check``
it only checks whether they are current, and exits with 1 if one is not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from roquet.format import batch, consume_queue, index_file, record_checks, record_layout
from roquet.format.layout import Layout
from roquet.model import host, plain_send, properties, sys_flag, topic
from roquet.remoting import command
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.pull import PullFlag

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "roquet"

MADE_BY = "Made by ``scripts/compiled_declarations.py``; change the Python modules, not this file."
HEADINGS = {
    ".pxd": f'"""{{about}}\n\n{MADE_BY}\n"""\n',
    ".h": f"/* {{about}}\n *\n * {MADE_BY}\n */\n",
}

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


def layout_lines(prefix: str, layout: Layout) -> Iterator[str]:
    """Positions and size of a layout."""
    for field in layout.fields:
        name = _WORD_START.sub("_", field.name).upper()
        yield f"{prefix}_{name}_AT = {layout.at(field.name)}"
    yield f"{prefix}_BYTES = {layout.bytes}"


def constant_lines(module: ModuleType, *names: str) -> Iterator[str]:
    """Constants of a module, in C's notation."""
    for name in names:
        value: int = getattr(module, name)
        yield f"{name} = {f'0x{value:X}' if value > 0xFFFF else value}"


def enum(source: str, *groups: Iterator[str]) -> str:
    """An enumeration of values from one module."""
    lines = [f"cdef enum:  # {source}", *(f"    {line}" for group in groups for line in group)]
    return "\n".join(lines) + "\n"


def flags_and_limits() -> list[str]:
    """Declarations from :mod:`roquet.model`."""
    return [
        enum(
            "roquet.model.sys_flag",
            constant_lines(
                sys_flag,
                "COMPRESSED",
                "TRANSACTION_MASK",
                "BORN_HOST_V6",
                "STORE_HOST_V6",
                "INNER_BATCH",
                "COMPRESSION_MASK",
                "COMPRESSION_LZ4",
                "COMPRESSION_ZSTD",
            ),
        ),
        enum("roquet.model.host", constant_lines(host, "IPV4_HOST_BYTES", "IPV6_HOST_BYTES")),
        enum("roquet.model.properties", constant_lines(properties, "PROPERTIES_BYTES_MAX")),
        enum("roquet.model.topic", constant_lines(topic, "TOPIC_LENGTH_MAX")),
        enum("roquet.model.plain_send", constant_lines(plain_send, "PLAIN_SYS_FLAGS")),
    ]


def codes() -> list[str]:
    """Declarations from :mod:`roquet.remoting`."""
    taken = (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    )
    return [
        enum("roquet.remoting.codes", (f"{code.name} = {int(code)}" for code in taken)),
        enum("roquet.remoting.command", constant_lines(command, "ONEWAY_FLAG")),
        enum(
            "roquet.remoting.headers.pull",
            iter([f"COMMIT_OFFSET_FLAG = {int(PullFlag.COMMIT_OFFSET)}"]),
        ),
    ]


def plain_rule() -> list[str]:
    """The rule of :mod:`roquet.model.plain_send` about names, as a C function."""
    tests = [
        (name, f'size == {len(name)} && memcmp(at, "{name}", {len(name)}) == 0')
        for name in plain_send.RESERVED_NAMES
    ] + [
        (prefix, f'size >= {len(prefix)} && memcmp(at, "{prefix}", {len(prefix)}) == 0')
        for prefix in plain_send.RESERVED_PREFIXES
    ]
    lines = [
        "#ifndef ROQUET_PLAIN_SEND_H",
        "#define ROQUET_PLAIN_SEND_H",
        "",
        "#include <stddef.h>",
        "#include <string.h>",
        "",
        "static inline int roquet_is_reserved(const unsigned char *at, size_t size) {",
        "    if (size == 0) return 0;",
        *(
            f'    if (size == {len(name)} && memcmp(at, "{name}", {len(name)}) == 0) return 0;'
            for name in plain_send.UNRESERVED_NAMES
        ),
        "    switch (at[0]) {",
    ]
    for first in sorted({name[0] for name, _ in tests}):
        found = [test for name, test in sorted(tests) if name[0] == first]
        lines.append(f"    case '{first}':")
        lines += [f"        if ({test}) return 1;" for test in found]
        lines.append("        return 0;")
    lines += ["    default:", "        return 0;", "    }", "}", "", "#endif"]
    return ["\n".join(lines) + "\n"]


def layouts() -> list[str]:
    """Declarations from :mod:`roquet.format`."""
    return [
        # Separate, because in C23 a value beyond an int makes all values of an enumeration
        # unsigned.
        enum(
            "roquet.format.record_layout",
            constant_lines(record_layout, "MAGIC_V1", "MAGIC_V2", "MAGIC_BLANK"),
        ),
        enum(
            "roquet.format.record_layout",
            layout_lines("RECORD", record_layout.RECORD),
            constant_lines(
                record_layout,
                "CRC_MASK",
                "IPV6_EXTRA_BYTES",
                "TOPIC_LENGTH_BYTES_V1",
                "TOPIC_LENGTH_BYTES_V2",
                "PROPERTIES_LENGTH_BYTES",
                "CRC_PROPERTY_BYTES",
                "END_OF_SEGMENT_BYTES",
                "RECORD_BYTES_MIN",
                "BEHIND_BODY_BYTES_MAX",
                "COUNTERS_BYTES",
            ),
        ),
        enum("roquet.format.record_checks", constant_lines(record_checks, "KNOWN_FLAGS")),
        enum(
            "roquet.format.consume_queue",
            layout_lines("UNIT", consume_queue.UNIT_LAYOUT),
            constant_lines(consume_queue, "FILLER_SIZE"),
        ),
        enum(
            "roquet.format.index_file",
            layout_lines("INDEX_HEADER", index_file.HEADER_LAYOUT),
            layout_lines("INDEX_ENTRY", index_file.ENTRY_LAYOUT),
            constant_lines(index_file, "SLOT_BYTES", "SECONDS_MAX"),
        ),
        enum(
            "roquet.format.batch",
            layout_lines("BATCH_ENTRY", batch.ENTRY),
            constant_lines(batch, "BATCH_ENTRY_BYTES_MIN"),
        ),
    ]


FILES: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "format/_layout.pxd": ("Positions and sizes of what the store's files hold.", layouts),
    "model/_constants.pxd": ("Flags and limits of messages.", flags_and_limits),
    "model/_plain_send.h": ("Which names of properties are reserved.", plain_rule),
    "remoting/_codes.pxd": ("Requests that compiled code takes.", codes),
}
"""By path: the description of a file, and the function that generates it."""


def texts() -> Iterator[tuple[Path, str]]:
    """The files and their expected content."""
    for name, (about, make) in FILES.items():
        path = PACKAGE / name
        yield path, "\n".join([HEADINGS[path.suffix].format(about=about), *make()])


def main(arguments: list[str]) -> int:
    """Write the files, or check them."""
    stale = [
        (path, text)
        for path, text in texts()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    if arguments == ["--check"]:
        for path, _ in stale:
            sys.stdout.write(f"{path.name} is stale; run {Path(__file__).name}\n")
        return 1 if stale else 0
    for path, text in stale:
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
