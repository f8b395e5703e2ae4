"""Whether this code may go on with a generation of a projection."""

from __future__ import annotations

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
