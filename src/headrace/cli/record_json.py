"""A record as one line of JSON, as `consume --json` prints it and `produce --input records` reads it.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp_ms": 1794787200000,
     "key": "k", "value": "v", "headers": [["source", "test"]]}

Bytes that are no UTF-8 stand under another name, so that nothing is lost on the way: `key_base64`,
`value_base64`, and `{"base64": ...}` for a header's value. What produce needs is `value` or `value_base64`;
null is a tombstone.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def record_line(
    place: dict[str, object], key: bytes | None, value: bytes | None, headers: list[Header]
) -> str:
    """The line of a record, which begins with where it lies."""
    fields = {
        **place,
        **_named("key", key),
        **_named("value", value),
        "headers": [[name, _header_value(content)] for name, content in headers],
    }
    return json.dumps(fields, ensure_ascii=False)


def read_record_line(line: str, number: int) -> OutgoingRecord:
    """Read a record; the topic and the offset that it had are not looked at."""
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"line {number} is not JSON ({error.msg}): {line[:80]!r}") from error
    if not isinstance(fields, dict) or not ({"value", "value_base64"} & fields.keys()):
        raise ConfigError(
            f'line {number} is no record: write {{"key": ..., "value": ...}}, not {line[:80]!r}'
        )
    try:
        return OutgoingRecord(
            key=_content(fields, "key"),
            value=_content(fields, "value"),
            headers=tuple(_header(each) for each in fields.get("headers") or ()),
            partition=_whole(fields.get("partition")),
            timestamp_ms=_whole(fields.get("timestamp_ms")),
        )
    except (ValueError, TypeError, Base64Error) as error:
        raise ConfigError(f"line {number} is no record ({error}): {line[:80]!r}") from error


def text_or_none(data: bytes | None) -> str | None:
    """The bytes as text, if they are UTF-8."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _named(name: str, data: bytes | None) -> dict[str, str | None]:
    text = text_or_none(data)
    if data is not None and text is None:
        return {f"{name}_base64": b64encode(data).decode()}
    return {name: text}


def _header_value(content: bytes | None) -> object:
    text = text_or_none(content)
    if content is not None and text is None:
        return {"base64": b64encode(content).decode()}
    return text


def _content(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded, validate=True)
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    # A value that is itself JSON may be written as it is.
    return json.dumps(value, ensure_ascii=False).encode()


def _header(pair: Any) -> Header:
    name, content = pair
    if not isinstance(name, str):
        raise TypeError(f"a header's name is {name!r}")
    if isinstance(content, dict):
        return name, b64decode(content["base64"], validate=True)
    return name, None if content is None else str(content).encode()


def _whole(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value
