"""A handler over all events, in order, each with its effect once: what drives a projection.

A subscription takes events after the position that its place has kept, in batches. In one transaction of the
place it calls the projection's function for each event and keeps the position of the last. A process that is
killed anywhere has either done all of a batch or nothing of it. Two processes that run the same subscription
don't disturb each other: the place lets one batch follow the other, and each begins where the other ended.

An event that the function fails at is found by taking the events of its batch one by one. It is tried alone
a few times, because what it met may pass; then it is buried or the subscription stops, as the projection
says. A place that does not answer is not the event's fault: that raises StoreUnavailable, counts as no
attempt, and is tried again for ever, with pauses.

New events are looked for by asking. A notification by PostgreSQL would make the commits of all writers wait
for one another (NOTIFY holds a lock until the commit is on disk), which costs more than a question every
few milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from headrace.errors import ProjectionStopped, StoreUnavailable
from headrace.events.projections.place import DeadLetter, Generation, Place, WorkFailed
from headrace.events.projections.projection import Projection
from headrace.failpoints import hit

IDLE_PAUSE_S: Final = 0.005
IDLE_PAUSE_S_MAX: Final = 0.1
"""How long to wait at most before the next question, where nothing has happened for a while."""
UNAVAILABLE_PAUSE_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Events that follow on a position, and up to where the log was looked through for them."""

    events: Sequence[Any]
    reached: int


ReadPage = Callable[[int, int], Page]
"""Takes a position and a count: the events after it, so many at most."""


class Subscription:
    """Brings one generation of a projection forward. Not safe to use from several threads at once."""

    def __init__(
        self,
        read: ReadPage,
        place: Place,
        projection: Projection,
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._read = read
        self._place = place
        self._projection = projection
        self._sleep = sleep

    def run_once(self, generation: Generation) -> Generation | None:
        """Take the next batch. Returns the generation as it is then; None where there was nothing to do."""
        page = self._read(generation.position, self._projection.batch_count_max)
        if page.reached <= generation.position:
            return None
        try:
            position = self._take(generation.number, page)
        except WorkFailed:
            position = generation.position
            # An upcast may have made several events of one position; they are taken together or not at all.
            for _, parts in groupby(page.events, key=lambda event: event.position):
                position = self._take_alone(generation.number, tuple(parts))
            position = max(position, self._take(generation.number, Page(events=(), reached=page.reached)))
        return replace(generation, position=position)

    def _take(self, number: int, page: Page, *, alone: bool = False) -> int:
        """All events of a page in one transaction."""
        with self._place.begin(self._projection, number, alone=alone) as batch:
            # Another process may have been faster.
            for event in page.events:
                if event.position > batch.position:
                    self._handle(batch.work_for(event), event)
            reached = max(batch.position, page.reached)
            batch.advance(reached)
            hit("events.batch.applied")
        hit("events.batch.committed")
        return int(reached)

    def _take_alone(self, number: int, parts: Sequence[Any]) -> int:
        poison = self._projection.poison
        position = int(parts[0].position)
        attempt = 1
        while True:
            try:
                self._take(number, Page(events=parts, reached=position), alone=True)
            except WorkFailed as failed:
                if attempt == poison.attempt_count_max:
                    self._give_up(number, parts[0], failed.cause, attempt)
                    return position
                self._sleep(poison.pause_after_s(attempt))
                attempt += 1
            else:
                return position

    def _handle(self, work: Any, event: Any) -> None:
        try:
            self._projection.handle(work, event)
        except StoreUnavailable:
            raise
        except Exception as error:
            raise WorkFailed(error) from error

    def _give_up(self, number: int, event: Any, cause: str, attempt_count: int) -> None:
        name = self._projection.name
        if self._projection.poison.then == "stop":
            raise ProjectionStopped(
                f"projection {name} stands still at position {event.position} ({event.type} of "
                f"{event.stream}): {cause}; mend its code and start it again"
            )
        letter = DeadLetter(
            projection=name,
            generation=number,
            position=event.position,
            stream=event.stream,
            event_id=str(event.id),
            type=event.type,
            cause=cause,
            attempt_count=attempt_count,
        )
        with self._place.begin(self._projection, number, alone=True) as batch:
            if event.position > batch.position:
                batch.bury(letter)
                batch.advance(event.position)
