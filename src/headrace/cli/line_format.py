"""How `headrace produce` makes a record of a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from headrace.cli.record_json import OutgoingRecord
from headrace.errors import ConfigError

AS_THEY_ARE: Final = "surrogateescape"
"""Bytes that are no text pass through Python's strings unharmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """Where a line's key comes from, and what its value may be."""

    key: str | None = None
    key_separator: str | None = None
    key_field: str | None = None
    tombstone: str | None = None
    must_be_json: bool = False

    def check(self, *, reads_records: bool) -> None:
        """Raise if the options contradict each other."""
        given = {"--key": self.key, "--key-separator": self.key_separator, "--key-field": self.key_field}
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise ConfigError(f"use {' or '.join(names)}, not {'both' if len(names) == 2 else 'all'}")
        if reads_records and (names or self.tombstone is not None):
            raise ConfigError(
                f"--input records brings keys and nulls along: leave out {' '.join(names) or '--tombstone'}"
            )

    def read(self, line: str, number: int) -> OutgoingRecord:
        """The record that a line stands for."""
        key, text = self._split(line, number)
        if self.tombstone is not None and text == self.tombstone:
            return OutgoingRecord(key=key, value=None)
        if self.must_be_json:
            _json(text, number)
        return OutgoingRecord(key=key, value=_bytes(text))

    def _split(self, line: str, number: int) -> tuple[bytes | None, str]:
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise ConfigError(f"line {number} has no key separator {self.key_separator!r}: {line[:80]!r}")
            return _bytes(key), value
        if self.key_field is not None:
            return _bytes(self._json_key(line, number)), line
        return None if self.key is None else _bytes(self.key), line

    def _json_key(self, line: str, number: int) -> str:
        value = _json(line, number)
        if not isinstance(value, dict) or value.get(self.key_field) is None:
            raise ConfigError(f"line {number} has no field {self.key_field!r} to use as key: {line[:80]!r}")
        return str(value[self.key_field])


def _json(text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {number} is not JSON ({error.msg}): {text[:80]!r}") from error
    except RecursionError as error:
        raise ConfigError(f"line {number} is JSON nested too deeply: {text[:80]!r}") from error


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", AS_THEY_ARE)
