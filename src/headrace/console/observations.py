"""What the feed tells the board. The feed watches the broker on threads of its own; these values are all
that crosses over to the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.decode import AlertRecord
    from headrace.console.pipelines import Pipeline
    from headrace.console.samples import Sample
    from headrace.console.travel import Change, Store
    from headrace.driver.store_lag import StoreLag


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsRead:
    """Records of the alerts topic, in the order of their partitions."""

    records: tuple[AlertRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsMeasured:
    """The broker answered: where each topic ends, summed over partitions. None: there is no such topic."""

    input_end: int | None
    alerts_end: int | None
    others: Mapping[str, int] = field(default_factory=dict)
    """Where further topics end that the page shows."""
    pipelines: tuple[Pipeline, ...] = ()
    """What the pipelines do at the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSampled:
    """Some of what came on the input topic; None for what could not be read."""

    samples: tuple[Sample | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresSeen:
    """A look at all stores that pipelines keep, and some of the changes that came since the last one."""

    stores: tuple[Store, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagsMeasured:
    """How far stores are behind the log, by pipeline."""

    lags: Mapping[str, StoreLag]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverKilled:
    """Somebody pressed the button."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlMoved:
    """Somebody moved a slider, or a record from before this start says where it stands."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonPressed:
    """Somebody pressed a button of the view."""

    name: str
    pressed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLost:
    """The broker does not answer."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFailed:
    """The feed met something that it can't recover from by itself, and has ended."""

    reason: str


Observation = (
    RecordsRead
    | TopicsMeasured
    | InputSampled
    | StoresSeen
    | LagsMeasured
    | DriverKilled
    | ControlMoved
    | ButtonPressed
    | BrokerLost
    | FeedFailed
)
