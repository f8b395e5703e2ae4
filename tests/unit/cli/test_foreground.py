"""What a command that runs several parts shows of what they say."""

from __future__ import annotations

import logging

import pytest

from headrace.cli.foreground import worth_a_line
from headrace.logs import TextFormatter


def log(name: str, level: int, message: str) -> str:
    return TextFormatter().format(logging.LogRecord(name, level, "", 0, message, None, None))


def test_that_a_part_has_ended_and_why_is_shown() -> None:
    for line in ("ended with signal SIGKILL; starting it again in 0.5 s", "error: the port is taken"):
        assert worth_a_line(line) == line


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_what_somebody_did_on_the_page_is_shown_without_where_it_was_logged(level: int) -> None:
    line = log("headrace.console.actions", level, "moved rate to 500, as the page asked")
    assert worth_a_line(line) == "moved rate to 500, as the page asked"


def test_all_else_is_for_whoever_asks_for_it() -> None:
    for line in ("", "console serving on http://127.0.0.1:8500/", log("headrace.kafka", logging.INFO, "x")):
        assert worth_a_line(line) is None
