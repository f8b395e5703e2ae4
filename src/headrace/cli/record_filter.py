"""Which records `headrace consume` prints: by key, and by what is in a JSON value.

A condition is a JSONPath (RFC 9535), which is data and never code:

    @.amount > 100 && @.currency == 'EUR'    a test of the value; `@` is the value
    $.items[?@.price > 100]                  a path: it must find something in the value
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import jsonpath
from jsonpath import JSONPath, JSONPathError

from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of a JSON value."""

    path: JSONPath
    is_test: bool

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition, or say what is wrong with it."""
        is_test = not text.lstrip().startswith("$")
        try:
            path = jsonpath.compile(f"$[?{text}]" if is_test else text)
        except JSONPathError as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"--where {text!r} is not a condition ({reason}): write '@.amount > 100', or a path such as "
                "'$.items[?@.price > 100]'"
            ) from error
        if not isinstance(path, JSONPath):
            raise ConfigError(f"--where {text!r} joins several paths: use one")
        return cls(path, is_test)

    def holds(self, value: bytes | None) -> bool:
        """Whether the value is JSON and passes."""
        if value is None:
            return False
        try:
            content = json.loads(value)
        except (ValueError, RecursionError):
            return False
        # A test selects among the elements of an array, so the value becomes the only one.
        return self.path.match([content] if self.is_test else content) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Lets records pass; one that asks for nothing lets all pass."""

    keys: frozenset[bytes] = frozenset()
    condition: Condition | None = None

    def passes(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether to print the record."""
        if self.keys and key not in self.keys:
            return False
        return self.condition is None or self.condition.holds(value)
