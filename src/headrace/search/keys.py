"""A row's key as text: the same for the pipeline that writes an index and for whoever looks a row up. No I/O.

The text is a JSON array of the key columns' values. Each value has one text, however it was given: decimals
have no zeros at their end, and moments are in UTC.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite

from headrace.errors import UsageError


def key_text(values: Sequence[object]) -> str:
    """The text of a key."""
    return f"[{','.join(map(_text, values))}]"


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value) if isfinite(value) else f'"{value}"'
        case Decimal():
            text = format(value, "f")
            return text.rstrip("0").rstrip(".") if "." in text else text
    return json.dumps(_quoted(value), ensure_ascii=False)


def _quoted(value: object) -> str:
    match value:
        case str():
            return value
        case datetime():
            moment = value if value.tzinfo is None else value.astimezone(UTC)
            return moment.isoformat(timespec="microseconds")
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
    raise UsageError(
        f"{value!r} can't be part of a key: give numbers, text, booleans, dates, moments, decimals or bytes"
    )
