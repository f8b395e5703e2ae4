"""Make a projection anew, from the first event, while the present one is read and goes on.

1. A generation is added that is building. A rebuild that was interrupted, by this version of the code, is
   gone on with; one by other code is given up.
2. It is brought forward, batch by batch, until it is at the end of the log.
3. The live generation is held still, the building one makes up for what is between them, and takes its
   place: all in one transaction of the place. Whoever is killed before it is done has changed nothing.
4. What the former generation kept is dropped.

The rebuilt data is what a replay of the whole log gives, because it is one. Effects are not fired a second
time: see place.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.errors import StoreUnavailable
from headrace.events.projections.place import Generation, Place
from headrace.events.projections.projection import Projection
from headrace.events.subscription import Subscription
from headrace.failpoints import hit

SWAP_ATTEMPT_COUNT_MAX: Final = 5

OnProgress = Callable[[int], None]
"""Is told the position that was come to."""


def rebuild(
    subscription: Subscription, place: Place, projection: Projection, on_progress: OnProgress = lambda _: None
) -> Generation:
    """Rebuild a projection; returns the generation that is live then."""
    building = place.build(projection)
    hit("events.rebuild")
    while (further := subscription.run_once(building)) is not None:
        building = further
        on_progress(building.position)

    def catch_up(position: int) -> None:
        nonlocal building
        while building.position < position:
            further = subscription.run_once(building)
            assert further is not None, f"events up to {position} were there, and are not after {building}"
            building = further

    _swap(place, projection, building.number, catch_up)
    clear(place, projection.name)
    on_progress(building.position)
    return next(each for each in place.generations(projection.name) if each.number == building.number)


def _swap(place: Place, projection: Projection, number: int, catch_up: Callable[[int], None]) -> None:
    """Swap, again and again where somebody reads for so long that others would have to queue."""
    for _ in range(SWAP_ATTEMPT_COUNT_MAX - 1):
        try:
            return place.swap(projection, number, catch_up)
        except StoreUnavailable:
            continue
    return place.swap(projection, number, catch_up)


def clear(place: Place, name: str) -> None:
    """Drop what former generations kept; another time where somebody reads it still."""
    try:
        place.clear_retired(name)
    except StoreUnavailable:
        return
