"""What becomes of rows that come when their windows have ended.

A row is late when all windows that it belongs to have ended by the watermark before its micro-batch, and with
`update` when their allowed lateness is over, too. A row without an event time belongs to no window; it goes
the way of late rows, with a reason of its own.

| policy | late rows |
|---|---|
| `drop` | are counted |
| `side_output(topic)` | go to a topic, with their window, how late they were, the watermark, and the reason |
| `update(within=...)` | change their window, which fires again, until `within` after its end |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headrace.errors import PipelineError
from headrace.streams.time.durations import Duration, duration_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Late rows are counted, and dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOutput:
    """Late rows go to a topic of their own."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Windows stay open to late rows for a while after their end, and fire again when they change."""

    within_us: int
    retract: bool = False
    """Whether each change takes back first what it replaces: the old row with `retracted` true."""
    then: Drop | SideOutput = field(default_factory=Drop)
    """What becomes of rows that come later still."""


LatePolicy = Drop | SideOutput | Update

drop: Final = Drop()
"""Late rows are counted, and dropped."""


def side_output(topic: str) -> SideOutput:
    """Late rows go to this topic, with their window, how late they were, the watermark, and the reason."""
    if not _is_name(topic):
        raise PipelineError(f"the topic of late rows is {topic!r}, but must be a name, such as 'clicks.late'")
    return SideOutput(topic=topic)


def update(*, within: Duration, retract: bool = False, then: Drop | SideOutput = drop) -> Update:
    """Until `within` after its end, a window that changes fires again; later rows go to `then`."""
    if not isinstance(then, Drop | SideOutput):
        raise PipelineError(f"update(then={then!r}): give drop, or side_output(topic)")
    return Update(within_us=duration_us(within, "within"), retract=retract, then=then)


def within_us(policy: LatePolicy) -> int:
    """For how long after its end a window is kept."""
    return policy.within_us if isinstance(policy, Update) else 0


def after_all(policy: LatePolicy) -> Drop | SideOutput:
    """What becomes of rows that can change nothing any more."""
    return policy.then if isinstance(policy, Update) else policy


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
