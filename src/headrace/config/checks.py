"""What settings are checked with when they are made."""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import ConfigError

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka allows in a topic's name. `.` and `..` match and are refused on their own."""


def require(condition: bool, message: str) -> None:
    """Refuse settings for which this does not hold."""
    if not condition:
        raise ConfigError(message)


def check_topic_name(name: str) -> str:
    """Return the name, or say what is wrong with it."""
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(
            f"{name!r} is not a topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - (not . or ..)"
        )
    return name
