"""Where read models are kept: the interface between a subscription and its data.

A place keeps, for each projection, generations of its data, each with the position of the last event that it
has seen. The rules that each place keeps:

- Data and position change together, in a batch, or not at all.
- Batches of one generation follow one another, whoever runs them: a batch is told the position at its begin,
  and nobody else moves it before the batch has ended.
- One generation is *live*: it is what readers see. One more may be *building*; it becomes live in one step
  that also retires the former one. Who has lost a generation, or runs other code than it was made by, is
  told so by ProjectionReplaced, and changes nothing.
- Effects that a batch asks for are kept with its data. Those of the live generation are due. Those of a
  building one are dropped if the live one has seen the event, and held otherwise; when it becomes live,
  those that the former one has asked for meanwhile are dropped and the others become due. So each effect of
  each event is due once, in whichever generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol
from uuid import UUID, uuid5

from headrace.events.projections.projection import Projection

EFFECTS: Final = UUID("6a0b6c4e-7d0e-5f57-9f0b-3f6f1d5a2c11")
"""The name space of the ids of effects."""
CAUSE_LENGTH_MAX: Final = 2_000
"""A longer cause of a failure is cut."""


class WorkFailed(Exception):
    """A function has failed at an event, or what it did can't be kept: a broken constraint, say.

    Never leaves a subscription.
    """

    def __init__(self, error: Exception) -> None:
        self.cause = f"{type(error).__name__}: {error}"[:CAUSE_LENGTH_MAX]
        super().__init__(self.cause)


class GenerationState(StrEnum):
    """What a generation is for."""

    BUILDING = "building"
    LIVE = "live"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One making of a projection's data."""

    projection: str
    number: int
    version: int
    """Of the code that makes it."""
    position: int
    """Of the last event that it has seen; 0 before the first."""
    state: GenerationState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event that a projection could not take."""

    projection: str
    generation: int
    position: int
    stream: str
    event_id: str
    type: str
    cause: str
    attempt_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something to be done to the world because of an event: a mail, a call of a webhook."""

    id: UUID
    """The same whenever the event is seen again: who receives it twice can tell."""
    projection: str
    kind: str
    position: int
    """Of the event that it is of."""
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEffect:
    """An effect that could not be fired, and is not tried again by itself."""

    effect: Effect
    cause: str
    attempt_count: int


class Batch(Protocol):
    """A transaction of one generation. It counts when its context is left without an error.

    Leaving it raises WorkFailed where what was done can't be kept, and StoreUnavailable where the place does
    not answer.
    """

    @property
    def position(self) -> int:
        """Of the last event that the generation has seen, at the batch's begin."""

    def work_for(self, event: Any) -> Any:
        """What a projection's function is given with this event."""

    def advance(self, position: int) -> None:
        """All events up to here have been seen."""

    def bury(self, letter: DeadLetter) -> None:
        """Keep an event that could not be taken."""


class Place(Protocol):
    """Keeps read models. Safe to use from several threads and processes."""

    def prepare(self, projection: Projection) -> None:
        """Make what the projection needs; where it is new, a first generation, which is live."""

    def generations(self, name: str) -> tuple[Generation, ...]:
        """Those that are live or building, the live one first."""

    def begin(self, projection: Projection, number: int, *, alone: bool) -> AbstractContextManager[Batch]:
        """A batch of a generation; `alone` where it is of one event, which is suspected to be poison."""

    def build(self, projection: Projection) -> Generation:
        """The generation that is building; a new one, unless this code has begun one already."""

    def swap(self, projection: Projection, number: int, catch_up: Callable[[int], None]) -> None:
        """Let a building generation become the live one.

        `catch_up` is called with the live one's position, which stands still meanwhile, and has to bring the
        building one there.
        """

    def clear_retired(self, name: str) -> None:
        """Drop the data of generations that are neither read nor built any more."""

    def dead_letters(self, name: str) -> Sequence[DeadLetter]:
        """Those of the generations that are live or building, by position."""

    def dead_letter_count(self, name: str) -> int:
        """How many there are."""

    def fire(self, name: str, send: Callable[[Effect], None], *, attempt_count_max: int) -> bool:
        """Send the oldest effect that is due, if there is one, and note it; says whether there was one."""

    def failed_effects(self, name: str) -> Sequence[FailedEffect]:
        """Those that were tried too often."""

    def fired_at(self, name: str, effect_id: UUID) -> datetime | None:
        """When an effect was fired."""


def effect_id(projection: str, event: Any, kind: str, key: str) -> UUID:
    """The id of an effect: of the same event it is always the same."""
    return uuid5(EFFECTS, f"{projection}\0{event.id}\0{event.part}\0{kind}\0{key}")


def live(place: Place, name: str) -> Generation:
    """The generation that readers see."""
    found = [each for each in place.generations(name) if each.state is GenerationState.LIVE]
    assert len(found) == 1, f"{name} has {len(found)} live generations"
    return found[0]
