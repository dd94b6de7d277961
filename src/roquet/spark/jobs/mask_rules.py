"""Masking rules for data that must not be exported: names, addresses, account numbers.

Reads the file of rules and applies them to messages. The file is TOML::

    [[rule]]
    topics = "Orders.*"              # a regular expression, all topics without it
    field = "body.customer.email"    # a path in a body of JSON, or body, keys, tags, bornHost,
                                     # storeHost, properties.NAME
    action = "hash"                  # null, mask or hash

    [[rule]]
    field = "properties.phone"
    action = "mask"                  # all but the last characters become *
    keep = 4

``hash`` gives the same text for the same value, so rows can still be joined. It is keyed with a
salt, since short values could otherwise be guessed by trial.

Invariant: a value that a rule hides is never exported because it could not be parsed. A rule for a
path in the body removes the whole body if it is not JSON.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from roquet.errors import SparkOptionError
from roquet.model.properties import KEYS, TAGS

__all__ = ["Masker", "Row", "Rule", "read_rules"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Row: TypeAlias = "dict[str, object]"
"""A message by column; ``body`` as bytes, ``properties`` as a mapping."""

_PLAIN = ("body", "keys", "tags", "bornHost", "storeHost")
_BODY, _PROPERTIES = "body.", "properties."
_TWICE = {"keys": KEYS, "tags": TAGS}
"""Columns whose text is a property too."""
_HASH_CHARS = 32


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule.

    Attributes:
        field: What it hides.
        action: How it hides it.
        topics: A regular expression that must match the whole name of a topic.
        keep: How many trailing characters ``mask`` keeps.
    """

    field: str
    action: Literal["null", "mask", "hash"] = "null"
    topics: str = ".*"
    keep: int = 0


class _Rules(Struct, forbid_unknown_fields=True):
    rule: list[Rule]


def read_rules(path: Path) -> list[Rule]:
    """Read a file of rules.

    Raises:
        SparkOptionError: It cannot be read, or a rule is invalid.
    """
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _Rules).rule
    except OSError as error:
        raise SparkOptionError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise SparkOptionError(
            f"{path} has invalid rules.",
            detail=str(error),
            hint="Write [[rule]] with field, action, and maybe topics and keep.",
        ) from None
    for rule in rules:
        _check(path, rule)
    return rules


def _check(path: Path, rule: Rule) -> None:
    is_path = any(
        rule.field.startswith(prefix) and len(rule.field) > len(prefix)
        for prefix in (_BODY, _PROPERTIES)
    )
    if not (is_path or rule.field in _PLAIN):
        raise SparkOptionError(
            f"{path} has a rule for {rule.field!r}, which is not a field.",
            hint=f"Fields are {', '.join(_PLAIN)}, body.PATH and properties.NAME.",
        )
    try:
        re.compile(rule.topics)
    except re.error as error:
        raise SparkOptionError(
            f"{path} has a rule for topics {rule.topics!r}, which is not a regular expression.",
            detail=str(error),
        ) from None


@dataclass
class Masker:
    """Applies rules.

    Attributes:
        rules: The rules, in order.
        salt: The key of hashes.
        hidden: The number of hidden values.
        unreadable: The number of bodies removed because they are not JSON.
    """

    rules: Sequence[Rule]
    salt: bytes = b""
    hidden: int = 0
    unreadable: int = 0

    def apply(self, row: Row) -> Row:
        """Return the masked message."""
        topic = str(row.get("topic"))
        rules = [rule for rule in self.rules if re.fullmatch(rule.topics, topic)]
        if not rules:
            return row
        masked = dict(row)
        in_body = [rule for rule in rules if rule.field.startswith(_BODY)]
        for rule in rules:
            for name in _places(rule.field):
                if name.startswith(_PROPERTIES):
                    self._property(masked, rule, name.removeprefix(_PROPERTIES))
                elif rule not in in_body and masked.get(name) is not None:
                    masked[name] = self._hide(rule, masked[name])
        body = masked.get("body")
        if in_body and isinstance(body, bytes):
            masked["body"] = self._body(in_body, body)
        return masked

    def _property(self, row: Row, rule: Rule, name: str) -> None:
        properties = row.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            hidden = self._hide(rule, properties[name])
            row["properties"] = {**properties, name: hidden}

    def _body(self, rules: Sequence[Rule], body: bytes) -> bytes | None:
        try:
            value: Json = json.loads(body)
        except (ValueError, RecursionError):
            self.unreadable += 1
            return None
        for rule in rules:
            self._walk(rule, value, rule.field.removeprefix(_BODY).split("."))
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def _walk(self, rule: Rule, value: Json, path: Sequence[str]) -> None:
        """Hide the value at a path; in a list, in all its items."""
        if isinstance(value, list):
            for item in value:
                self._walk(rule, item, path)
        elif isinstance(value, dict) and path[0] in value:
            if len(path) > 1:
                self._walk(rule, value[path[0]], path[1:])
            elif value[path[0]] is not None:
                hidden = self._hide(rule, value[path[0]])
                value[path[0]] = hidden if isinstance(hidden, str) else None

    def _hide(self, rule: Rule, value: object) -> str | bytes | None:
        self.hidden += 1
        if rule.action == "null":
            return None
        data = value if isinstance(value, bytes) else _text(value).encode("utf-8", "replace")
        if rule.action == "hash":
            made = hmac.new(self.salt, data, hashlib.sha256).hexdigest()[:_HASH_CHARS]
        else:
            text = data.decode("utf-8", "replace")
            kept = text[len(text) - rule.keep :] if 0 < rule.keep < len(text) else ""
            made = "*" * (len(text) - len(kept)) + kept
        return made.encode() if isinstance(value, bytes) else made


def _places(field: str) -> list[str]:
    """Return where a field is; keys and tags are both columns and properties.

    Example:
        >>> _places("keys"), _places("properties.TAGS"), _places("body")
        (['keys', 'properties.KEYS'], ['properties.TAGS', 'tags'], ['body'])
    """
    others = [_PROPERTIES + name for column, name in _TWICE.items() if column == field]
    others += [column for column, name in _TWICE.items() if _PROPERTIES + name == field]
    return [field, *others]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
