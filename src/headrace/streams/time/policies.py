"""Policies of watermarks: how long to wait for events that are still on their way.

A watermark of 10:00 says: nothing older than 10:00 is waited for any more.

| policy | a source has passed |
|---|---|
| `bounded("10 seconds")` | its newest event, less 10 seconds |
| `adaptive(quantile=0.99)` | its newest event, less what 99 of 100 events are late by at most |
| `declared("complete_until")` | what it says itself, in a column of its rows |
| `perfect()` | everything, at the end of the input |

Policies are values, and travel as JSON: `{"policy": "bounded", "delay_us": 10000000, "idle_after_us": null}`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from headrace.errors import PipelineError
from headrace.streams.time.durations import Duration, delay_us, duration_text, duration_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """Events are late by at most a fixed delay; those that are not in time are late rows."""

    delay_us: int
    idle_after_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """The delay follows the lateness that is seen, between two bounds."""

    quantile: float
    at_least_us: int
    at_most_us: int
    idle_after_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """Sources say themselves how far they are, in a column of their rows."""

    column: str
    partitions: int | None = None
    """How many must have said so before the watermark moves; None for those that are known by then."""
    idle_after_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Perfect:
    """Only the end of the input completes a window."""

    idle_after_us: None = None


Policy = Bounded | Adaptive | Declared | Perfect
_POLICIES: Final[dict[str, type[Policy]]] = {
    "bounded": Bounded,
    "adaptive": Adaptive,
    "declared": Declared,
    "perfect": Perfect,
}


def bounded(delay: Duration, *, idle_after: Duration | None = None) -> Bounded:
    """Wait `delay` for events on their way.

    A source that has given nothing for `idle_after` while others went on no longer holds time back.
    """
    return Bounded(delay_us=delay_us(delay, "delay"), idle_after_us=_idle_us(idle_after))


def adaptive(
    *,
    quantile: float = 0.99,
    at_least: Duration = "1 second",
    at_most: Duration = "1 hour",
    idle_after: Duration | None = None,
) -> Adaptive:
    """Wait as long as `quantile` of the last events were late by, from `at_least` to `at_most`."""
    if not _is_fraction(quantile):
        raise PipelineError(f"quantile is {quantile!r}, but must be between 0 and 1, such as 0.99")
    at_least_us, at_most_us = delay_us(at_least, "at_least"), delay_us(at_most, "at_most")
    if at_least_us > at_most_us:
        raise PipelineError(
            f"at_least is {duration_text(at_least_us)}, more than at_most, {duration_text(at_most_us)}"
        )
    return Adaptive(
        quantile=quantile,
        at_least_us=at_least_us,
        at_most_us=at_most_us,
        idle_after_us=_idle_us(idle_after),
    )


def declared(column: str, *, partitions: int | None = None, idle_after: Duration | None = None) -> Declared:
    """Wait until the sources say that nothing older will come: `declared("complete_until")`.

    The column is a timestamp of the rows, null in those that say nothing. A partition that has not said
    anything yet holds the watermark back. One that has had no row at all is not known; with `partitions`,
    the watermark does not move before so many have spoken.
    """
    if not _is_name(column):
        raise PipelineError(f"declared({column!r}): name the column by which sources say how far they are")
    if partitions is not None and partitions < 1:
        raise PipelineError(f"declared(partitions={partitions!r}): wait for at least one partition")
    return Declared(column=column, partitions=partitions, idle_after_us=_idle_us(idle_after))


def perfect() -> Perfect:
    """Wait until the input ends."""
    return Perfect()


def declared_column(policy: Policy | None) -> str | None:
    """The column by which sources say how far they are; None where they don't."""
    return policy.column if isinstance(policy, Declared) else None


def to_json(policy: Policy) -> str:
    """The policy as one line of JSON."""
    name = next(name for name, kind in _POLICIES.items() if isinstance(policy, kind))
    return json.dumps({"policy": name, **asdict(policy)})


def from_json(text: str) -> Policy:
    """The policy that `to_json` wrote."""
    try:
        fields: dict[str, Any] = json.loads(text)
        return _POLICIES[fields.pop("policy")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"this is no policy of a watermark: {text!r}; make it by to_json") from error


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_fraction(value: object) -> bool:
    return isinstance(value, float) and 0 < value < 1


def _idle_us(idle_after: Duration | None) -> int | None:
    return None if idle_after is None else duration_us(idle_after, "idle_after")
