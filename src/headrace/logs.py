"""What the programs of this package say about themselves: one line per event, as text or as JSON.

    text    2026-01-02 03:04:05.678 WARNING headrace.kafka.client_connection: closing the connection of ...
    json    {"time": "2026-01-02T03:04:05.678Z", "level": "WARNING", "logger": "headrace.kafka...",
             "message": "closing the connection of ...", "client": "10.0.0.7:51234", "principal": "User:ann"}

A line of JSON has the fields of its event: `logger.info(..., extra=fields(topic="orders"))`. What looks
like a secret is masked in both, whoever logged it: a last line of defence, since nothing here logs secrets on
purpose. Control characters are escaped, so that no client can forge a line.

Only programs configure logging; a broker inside somebody else's process leaves that to its host.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

MASK: Final = "***"
SECRET_NAME: Final = re.compile(r"(?i)passw(or)?d|passphrase|secret|credential|jaas|token|authorization")
_SECRET_VALUE: Final = re.compile(
    r"""(?ix) \b( [\w.-]* (?: passw(?:or)?d | passphrase | secret | jaas\.config | token | authorization )
        [\w.-]* ["']? \s* [=:] \s* ) (?: "[^"]*" | '[^']*' | (?:basic|bearer)\s+\S+ | [^\s,;}]+ )"""
)
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127) if code not in {9, 10}}


def fields(**values: object) -> dict[str, Any]:
    """What to pass as `extra`: the fields of an event, beside its message."""
    return {"fields": values}


def masked(text: str) -> str:
    """The text without the values of what looks like passwords and tokens."""
    return _SECRET_VALUE.sub(rf"\g<1>{MASK}", text)


def configure_logging(log_format: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Log to standard error from now on. For programs; a library must not decide this."""
    if log_format not in get_args(LogFormat) or level not in get_args(LogLevel):
        raise ConfigError(
            f"logging as {log_format!r} from level {level!r} is not possible: "
            f"use {' or '.join(get_args(LogFormat))}, and one of {', '.join(get_args(LogLevel))}"
        )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class TextFormatter(logging.Formatter):
    """Lines for people. A traceback follows its line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        when = _time_of(record).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        message = _one_line(record.getMessage())
        line = f"{when} {record.levelname} {record.name}: {message}"
        traceback = _traceback_of(self, record)
        return masked(f"{line}\n{traceback}" if traceback else line)


class JsonFormatter(logging.Formatter):
    """Lines for programs: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        event: dict[str, object] = {
            "time": _time_of(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": masked(record.getMessage()),
        }
        given: Mapping[str, object] = getattr(record, "fields", {})
        for name, value in given.items():
            event.setdefault(name, MASK if SECRET_NAME.search(name) else value)
        if traceback := _traceback_of(self, record):
            event["error"] = masked(traceback)
        return json.dumps(event, ensure_ascii=True, default=str)


def _time_of(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _one_line(message: str) -> str:
    return message.translate(_CONTROL).replace("\n", "\\n")


def _traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
