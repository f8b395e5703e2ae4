"""What a projection may be called, and what it may be told."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.events import EventStore, MemoryJournal
from headrace.events.projections import MemoryPlace, Poison, Projection, ReadModels


def nothing(work: object, event: object) -> None:
    """Take an event and do nothing with it."""


@pytest.mark.parametrize("name", ["", "Balances", "1st", "a__g1", "a" * 41, "a-b", 'a"; DROP', "ä"])
def test_a_name_that_could_not_be_that_of_a_schema_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="can't be called"):
        Projection(name=name, handle=nothing)


def test_what_has_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="count from 1"):
        Projection(name="a", handle=nothing, version=0)
    with pytest.raises(ConfigError, match="batch_count_max is 0"):
        Projection(name="a", handle=nothing, batch_count_max=0)
    with pytest.raises(ConfigError, match="tried 0 times"):
        Poison(attempt_count_max=0)
    with pytest.raises(ConfigError, match="say bury or stop"):
        Poison(then="skip")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigError, match="pause between attempts is -1"):
        Poison(pause_s=-1)


def test_two_projections_of_one_name_are_refused_and_an_unknown_one_is_named() -> None:
    one = Projection(name="one", handle=nothing)
    store = EventStore(MemoryJournal())
    with pytest.raises(ConfigError, match="two projections have one name: one, one"):
        ReadModels(store, MemoryPlace(), [one, one])
    with pytest.raises(ConfigError, match="there is no projection 'two'; there are one"):
        ReadModels(store, MemoryPlace(), [one]).wait_for("two", 1, timeout_s=0)
