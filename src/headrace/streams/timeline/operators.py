"""Operators whose time is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.streams.buckets.logic import Logic
from headrace.streams.time.policies import Policy, declared_column
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.late import LatePolicy
from headrace.streams.windows.sessions import SessionWindows
from headrace.streams.windows.sliding import SlidingWindows

WindowLogic = AlignedWindows | SessionWindows | SlidingWindows | GlobalWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """An operator whose time is looked at."""

    name: str
    logic: Logic
    by: tuple[str, ...]
    """The columns of its keys that a user knows of."""
    event_time: str | None

    @property
    def policy(self) -> Policy | None:
        """How it waits for late rows; None where it knows no event time."""
        found: Policy | None = getattr(self.logic, "watermark", None)
        return found if self.event_time is not None else None

    @property
    def declared(self) -> str | None:
        """The column by which sources say how far they are; None where they don't."""
        return declared_column(self.policy)

    @property
    def late(self) -> LatePolicy | None:
        """What becomes of late rows; None where it has none."""
        found: LatePolicy | None = getattr(self.logic, "late", None)
        return found
