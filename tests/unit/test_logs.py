"""Log lines: one per event, with its fields, without secrets."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import ConfigError
from headrace.logs import MASK, configure_logging, fields, masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Logged = Callable[[str], tuple[logging.Logger, io.StringIO]]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """A logger, and what it has written; afterwards all is as before."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    root.handlers = []

    def configure(log_format: Any) -> tuple[logging.Logger, io.StringIO]:
        stream = io.StringIO()
        configure_logging(log_format, "info", stream)
        return logging.getLogger("headrace.test"), stream

    yield configure
    root.handlers = before[1]
    root.setLevel(before[0])


def test_a_json_line_has_time_level_logger_message_and_the_fields_of_its_event(logged: Logged) -> None:
    logger, stream = logged("json")
    logger.warning("refused %s", "orders", extra=fields(topic="orders", principal="User:ann", count=2))
    event = json.loads(stream.getvalue())
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "WARNING",
        "logger": "headrace.test",
        "message": "refused orders",
        "topic": "orders",
        "principal": "User:ann",
        "count": 2,
    }


def test_a_text_line_is_one_line_whatever_a_client_puts_into_it(logged: Logged) -> None:
    logger, stream = logged("text")
    logger.info("client %s", "x\n2026-01-01 CRITICAL forged\r\x1b[2J")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r"INFO headrace.test: client x\n2026-01-01 CRITICAL forged\x0d\x1b[2J")


def test_a_json_line_is_one_line_whatever_a_client_puts_into_it(logged: Logged) -> None:
    logger, stream = logged("json")
    logger.info("client %s", "x\n\u2028y", extra=fields(message="forged", client="a\nb"))
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["message"] == "client x\n\u2028y"
    assert json.loads(line)["client"] == "a\nb"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_exception_is_logged_with_its_traceback_and_without_secrets(
    logged: Logged, log_format: str
) -> None:
    logger, stream = logged(log_format)
    try:
        int("password=hunter2")
    except ValueError:
        logger.exception("it failed")
    assert "Traceback" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_lines_below_the_level_are_not_written(logged: Logged) -> None:
    logger, stream = logged("text")
    logger.debug("too much detail")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2",
        "sasl.password: hunter2",
        'ssl.key.password = "hunter2"',
        "{'password': 'hunter2', 'user': 'ann'}",
        "sasl.jaas.config=hunter2",
        "client_secret=hunter2;x=1",
        "Authorization: Bearer hunter2",
        "token=hunter2",
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    assert "hunter2" not in masked(text)
    assert MASK in masked(text)


def test_what_is_no_secret_stays_readable() -> None:
    line = "closing the connection of 127.0.0.1:1: the password of 'ann' is wrong (topic=orders)"
    assert masked(line) == line


def test_a_field_with_a_secret_name_is_masked(logged: Logged) -> None:
    logger, stream = logged("json")
    logger.info("added", extra=fields(password="hunter2", user="ann"))
    event = json.loads(stream.getvalue())
    assert (event["password"], event["user"]) == (MASK, "ann")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="text or json"):
        configure_logging("xml", "info")  # type: ignore[arg-type]  # that is the test
