"""Options of `headrace queues` that are written KEY=VALUE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.errors import ConfigError


def arguments_of(given: Sequence[str]) -> dict[str, Any]:
    """Arguments of a queue: numbers and true or false as such, all else as text."""
    return {name: _value(text) for name, text in (_split("--argument", each) for each in given)}


def headers_of(given: Sequence[str]) -> dict[str, str]:
    """Headers, as text."""
    return dict(_split("--header", each) for each in given)


def _split(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{option} {text!r} is not KEY=VALUE")
    return name, value


def _value(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int) else text
