"""Where `headrace consume` is told to begin."""

from __future__ import annotations

import pytest

from headrace.cli.start import Start
from headrace.errors import ConfigError


def parse(
    *offsets: str, from_beginning: bool = False, moment: str | None = None, tail: int | None = None
) -> Start:
    return Start.parse(from_beginning=from_beginning, offsets=list(offsets), moment=moment, tail=tail)


def test_an_offset_may_be_for_all_partitions_or_for_one() -> None:
    start = parse("5", "2:7")
    assert (start.offset, start.offset_by_partition) == (5, {2: 7})
    assert start.is_a_place


def test_with_nothing_given_it_is_the_end() -> None:
    assert parse() == Start()
    assert not parse().is_a_place
    assert not parse(from_beginning=True).is_a_place


@pytest.mark.parametrize("text", ["", "x", "1:", ":1", "1:x", "-1"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="neither an offset"):
        parse(text)


def test_two_places_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="--from-offset and --tail"):
        parse("5", tail=3)
    with pytest.raises(ConfigError, match="--from-beginning and --from-time"):
        parse(from_beginning=True, moment="1h")
