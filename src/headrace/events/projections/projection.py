"""What a projection is: a name, a function over events, and what to do with an event that it can't take.

    @projection("balances", create="CREATE TABLE balances (account text PRIMARY KEY, cents bigint NOT NULL)")
    def balances(work, event):
        match event.data:
            case Deposited(cents=cents):
                work.execute("UPDATE balances SET cents = cents + %s WHERE ...", (cents, event.stream))

The function is called once for each event, in the order of the log. Whatever it does through `work` counts
together with the position, or not at all. `version` says which code has made a table: when it changes, the
tables are made anew, beside those that are read (see rebuild.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from headrace.errors import ConfigError

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
"""Names are parts of names of schemas, which may have 63 letters."""
BATCH_COUNT_MAX: Final = 5_000
"""So many events a store gives at once."""

Handle = Callable[[Any, Any], None]
"""Takes the place's work and an event as it was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """What becomes of an event that the function fails at.

    It is tried alone, `attempt_count_max` times, with growing pauses. Then the projection stands still
    (`stop`), or the event goes to the dead letters with the cause and the projection goes on without it
    (`bury`): that is for read models which are right without some events. A sum is not, and what is wrong
    with the function would bury them all.
    """

    then: Literal["bury", "stop"] = "stop"
    attempt_count_max: int = 3
    pause_s: float = 0.05
    """Before the second attempt; doubled before each further one."""

    def __post_init__(self) -> None:
        if self.then not in {"bury", "stop"}:
            raise ConfigError(f"a poison event can't be handled by {self.then!r}: say bury or stop")
        if not 1 <= self.attempt_count_max <= 100:
            raise ConfigError(f"an event can't be tried {self.attempt_count_max} times: 1 to 100 times")
        if not 0 <= self.pause_s <= 60:
            raise ConfigError(f"the pause between attempts is {self.pause_s} s: 0 to 60 s are possible")

    def pause_after_s(self, attempt: int) -> float:
        """How long to wait after a failed attempt, counted from one."""
        return float(self.pause_s * 2 ** (attempt - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A read model, as it is declared. Make one with `@projection`."""

    name: str
    handle: Handle
    version: int = 1
    """Another number means other code: what older code has made is made anew."""
    create: str = ""
    """For tables: the statements that make them."""
    added: Mapping[str, str] = field(default_factory=dict)
    """Tables and indexes that older code of the same version did not make, each with what makes it: what a
    generation lacks of them, it is given when the projection is prepared."""
    types: tuple[type, ...] = ()
    """The types of events that it takes; all, where none is named."""
    effects_after: int = 0
    """Effects of events up to this position are never fired: for a read model that is new over old events."""
    batch_count_max: int = 500
    """So many events are taken in one transaction."""
    poison: Poison = field(default_factory=Poison)

    def __post_init__(self) -> None:
        if NAME.fullmatch(self.name) is None or "__" in self.name:
            raise ConfigError(
                f"a projection can't be called {self.name!r}: up to 40 lower-case letters, digits and single "
                "underscores, a letter first"
            )
        if self.version < 1:
            raise ConfigError(f"projection {self.name}: version is {self.version}; count from 1")
        if not 1 <= self.batch_count_max <= BATCH_COUNT_MAX:
            raise ConfigError(
                f"projection {self.name}: batch_count_max is {self.batch_count_max}; 1 to {BATCH_COUNT_MAX}"
            )


def projection(
    name: str,
    *,
    version: int = 1,
    create: str = "",
    types: tuple[type, ...] = (),
    effects_after: int = 0,
    batch_count_max: int = 500,
    poison: Poison | None = None,
) -> Callable[[Handle], Projection]:
    """Declare a projection: a function over the work and an event becomes a read model."""

    def declare(handle: Handle) -> Projection:
        return Projection(
            name=name,
            handle=handle,
            version=version,
            create=create,
            types=types,
            effects_after=effects_after,
            batch_count_max=batch_count_max,
            poison=poison or Poison(),
        )

    return declare
