"""Options of `headrace queues` that are written KEY=VALUE."""

from __future__ import annotations

import pytest

from headrace.cli.queue_options import arguments_of, headers_of
from headrace.errors import ConfigError


def test_arguments_are_numbers_where_they_look_like_it() -> None:
    given = ["x-max-length=1000", "x-single-active-consumer=true", "x-queue-type=classic", "empty="]
    assert arguments_of(given) == {
        "x-max-length": 1000,
        "x-single-active-consumer": True,
        "x-queue-type": "classic",
        "empty": "",
    }


def test_headers_are_texts() -> None:
    assert headers_of(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}


@pytest.mark.parametrize("text", ["", "a", "=b"])
def test_what_is_not_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        headers_of([text])
