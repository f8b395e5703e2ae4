"""What a pipeline is made of, as far as its checkpoint and its results depend on it: read, kept, compared."""

from __future__ import annotations

from headrace.streams.plans.change import Change, changes
from headrace.streams.plans.description import Description, Operator, Part, describe

__all__ = ["Change", "Description", "Operator", "Part", "changes", "describe"]
