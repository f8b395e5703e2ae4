"""Read models: tables that follow the events, rebuilt beside the present ones, and effects that fire once."""

from headrace.events.projections.memory_place import MemoryPlace, MemoryWork
from headrace.events.projections.place import (
    DeadLetter,
    Effect,
    FailedEffect,
    Generation,
    GenerationState,
    Place,
)
from headrace.events.projections.postgres_place import PostgresPlace
from headrace.events.projections.postgres_work import PostgresWork
from headrace.events.projections.projection import Poison, Projection, projection
from headrace.events.projections.read_models import ProjectionStatus, ReadModels

__all__ = [
    "DeadLetter",
    "Effect",
    "FailedEffect",
    "Generation",
    "GenerationState",
    "MemoryPlace",
    "MemoryWork",
    "Place",
    "Poison",
    "PostgresPlace",
    "PostgresWork",
    "Projection",
    "ProjectionStatus",
    "ReadModels",
    "projection",
]
