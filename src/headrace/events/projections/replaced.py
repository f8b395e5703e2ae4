"""Whether this code may go on with a generation of a projection."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import ProjectionReplaced
from headrace.events.projections.place import Generation, GenerationState
from headrace.events.projections.projection import Projection


def check_generation(generation: Generation, projection: Projection) -> None:
    """Raise ProjectionReplaced where it may not."""
    if generation.state is GenerationState.RETIRED:
        raise ProjectionReplaced(
            f"generation {generation.number} of projection {projection.name} was replaced by a later one: "
            "start this process anew"
        )
    if generation.version != projection.version:
        raise ProjectionReplaced(
            f"projection {projection.name} is at version {generation.version}, and this code is version "
            f"{projection.version}: rebuild it with the newer code, or start the newer code"
        )


def check_newest(generations: Iterable[Generation], projection: Projection) -> None:
    """Raise ProjectionReplaced where newer code has made a generation, or is making one."""
    newest = max(generations, key=lambda each: each.version)
    if newest.version > projection.version:
        raise ProjectionReplaced(
            f"projection {projection.name} is {newest.state} at version {newest.version}, and this code is "
            f"version {projection.version}: start the newer code, or rebuild by this code to go back"
        )
