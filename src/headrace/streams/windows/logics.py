"""Which logic runs a kind of window."""

from __future__ import annotations

from typing import Any

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import Logic
from headrace.streams.time.policies import Policy
from headrace.streams.windows.aggregate import Aggregate
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.kinds import GlobalWindow, Kind, Session, Sliding
from headrace.streams.windows.late import LatePolicy
from headrace.streams.windows.sessions import SessionWindows
from headrace.streams.windows.sliding import SlidingWindows
from headrace.streams.windows.triggers import Trigger


def window_logic(
    kind: Kind,
    *,
    by: tuple[str, ...],
    time: str | None,
    aggregates: tuple[Aggregate, ...],
    watermark: Policy,
    late: LatePolicy,
    trigger: Trigger,
) -> Logic:
    """The logic of windows of this kind. Only global windows have no time."""
    if isinstance(kind, GlobalWindow):
        return GlobalWindows(by=by, aggregates=aggregates, trigger=trigger, late=late)
    if time is None:
        raise PipelineError("windows of event time need the column that it is in")
    shared: dict[str, Any] = {"by": by, "time": time, "aggregates": aggregates, "late": late}
    if isinstance(kind, Session):
        return SessionWindows(kind=kind, watermark=watermark, trigger=trigger, **shared)
    if isinstance(kind, Sliding):
        return SlidingWindows(kind=kind, watermark=watermark, trigger=trigger, **shared)
    return AlignedWindows(kind=kind, watermark=watermark, trigger=trigger, **shared)
