"""All that the page shows, in one place: takes what the feed observes, gives events to the viewers.

Two kinds of server-sent event leave here. `alert` is one row of the book; its id is `<session>-<sequence>`,
so that a page that reconnects gets exactly the retained rows that are new or have changed since. A session is
one start of the console: ids of another session say nothing about this one, and get every retained row.
`stats` goes out once a second, has no id, and always carries everything, so that a page which shows the last
one it got is right.

The board belongs to the event loop's thread and is not safe to use from another.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from headrace.console.alerts import AlertBook, Row
from headrace.console.decode import Undecodable
from headrace.console.latency import HISTOGRAM_MS, LatencyWindow
from headrace.console.observations import (
    BrokerLost,
    FeedFailed,
    LagsMeasured,
    Observation,
    RecordsRead,
    StoresSeen,
    TopicsMeasured,
)
from headrace.console.rates import GrowthWindow
from headrace.console.scene import Scene
from headrace.console.status import Contact, Status, status_of
from headrace.console.travel import Travels
from headrace.console.view import View, plain_view
from headrace.console.viewers import Event, Viewer, Viewers

if TYPE_CHECKING:
    from headrace.clock import Clock
    from headrace.config import ConsoleConfig
    from headrace.console.decode import AlertRecord

INPUT_WINDOW_S: Final = 5.0
ALERTS_WINDOW_S: Final = 60.0
LATENCY_POINT_WINDOW_S: Final = 10.0
"""Each point of the latency chart covers so much, so that one slow second is seen and then over."""
SERIES_LENGTH: Final = 90
"""How many seconds back the page's small charts reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One second of the small charts; None where it is not known."""

    input_per_s: float | None
    alerts_per_s: float | None
    latency_ms_p50: int | None
    latency_ms_p99: int | None


class Board:
    """What the page shows."""

    def __init__(
        self, config: ConsoleConfig, clock: Clock, *, session: str, view: View | None = None
    ) -> None:
        view = view or plain_view(config)
        self._config = config
        self._clock = clock
        self._session = session
        self._scene = Scene(view, clock)
        self._travels = Travels()
        self._book = AlertBook(recent_alert_count_max=config.recent_alert_count_max, words=view.words)
        self._latency = LatencyWindow()
        self._latency_now = LatencyWindow(window_s=LATENCY_POINT_WINDOW_S)
        self._input_growth = GrowthWindow(window_s=INPUT_WINDOW_S)
        self._alerts_growth = GrowthWindow(window_s=ALERTS_WINDOW_S)
        self._alerts_second = GrowthWindow(window_s=2.5)
        self._points: deque[Point] = deque(maxlen=SERIES_LENGTH)
        self._started_ms = clock.now_ms()
        self._started_s = clock.monotonic_s()
        self._answered_s = self._started_s
        self._input_grew_s = self._started_s
        self._measured: TopicsMeasured | None = None
        self._lost: BrokerLost | None = None
        self._failure: str | None = None
        self.viewers = Viewers(
            viewer_count_max=config.viewer_count_max, viewer_backlog_max=config.viewer_backlog_max
        )

    def apply(self, observation: Observation) -> None:
        """Take in what the feed has observed."""
        self._scene.apply(observation, self._book.counts)
        match observation:
            case RecordsRead(records=records):
                for record in records:
                    self._take_record(record)
            case TopicsMeasured():
                self._take_measurement(observation)
            case StoresSeen(stores=stores, changes=changes):
                self._travels.take(stores, changes)
            case LagsMeasured(lags=lags):
                self._travels.measure(lags)
            case BrokerLost():
                self._lost = observation
            case FeedFailed(reason=reason):
                self._failure = reason
            case _:
                pass

    def tick(self) -> None:
        """Add a point to the charts and publish the numbers; called once a second."""
        now_s = self._clock.monotonic_s()
        self._scene.tick()
        latency = self._latency_now.summary(now_s)
        self._points.append(
            Point(
                input_per_s=_rounded(self._input_growth.per_second(now_s)),
                alerts_per_s=_rounded(self._alerts_second.per_second(now_s)),
                latency_ms_p50=latency.p50_ms,
                latency_ms_p99=latency.p99_ms,
            )
        )
        self.viewers.publish(Event(name="stats", data=json_text(self.stats())))

    def join(self, last_event_id: str | None) -> Viewer | None:
        """Open a page that has seen everything up to `last_event_id`; None when too many are open."""
        rows = self._book.rows_after(self._sequence_in(last_event_id))
        return self.viewers.join(
            [Event(name="stats", data=json_text(self.stats())), *(self._event(row) for row in rows)]
        )

    def stats(self) -> dict[str, Any]:
        """The numbers of the page, as JSON."""
        now_s = self._clock.monotonic_s()
        return {
            "session": self._session,
            "now_ms": self._clock.now_ms(),
            "started_ms": self._started_ms,
            "status": asdict(self.status()),
            "bootstrap": self._config.bootstrap,
            "input": {
                "topic": self._config.input_topic,
                "exists": self._measured is not None and self._measured.input_end is not None,
                "per_s": _rounded(self._input_growth.per_second(now_s)),
            },
            "alerts": {
                "topic": self._config.alerts_topic,
                "exists": self._measured is not None and self._measured.alerts_end is not None,
                "last_minute": self._alerts_growth.increase(now_s),
                **asdict(self._book.counts),
            },
            "latency": {**asdict(self._latency.summary(now_s)), "histogram_ms": HISTOGRAM_MS},
            "viewers": {
                "count": len(self.viewers),
                "count_max": self._config.viewer_count_max,
                "cut_off_count": self.viewers.cut_off_count,
            },
            **self._scene.stats(self._book.counts),
            "recent_alert_count_max": self._config.recent_alert_count_max,
            "series_length": SERIES_LENGTH,
            "series": {
                field.name: [getattr(point, field.name) for point in self._points] for field in fields(Point)
            },
        }

    def alerts(self) -> list[dict[str, Any]]:
        """The retained rows, newest first, as JSON."""
        return [row_json(row) for row in self._book.rows()]

    def stores(self, *, with_keys: bool) -> dict[str, Any]:
        """The stores that follow the log, and how the last changes travel to them, as JSON."""
        return self._travels.as_json(self._clock.now_ms(), with_keys=with_keys)

    def now_ms(self) -> int:
        """What time it is by the console's clock."""
        return self._clock.now_ms()

    def status(self) -> Status:
        """Whether anything stands still."""
        now_s = self._clock.monotonic_s()
        measured = self._measured
        contact = Contact(
            bootstrap=self._config.bootstrap,
            input_topic=self._config.input_topic,
            alerts_topic=self._config.alerts_topic,
            failure=self._failure,
            reached=measured is not None,
            lost_for_s=now_s - self._answered_s if self._lost else None,
            lost_reason=self._lost.reason if self._lost else "",
            input_end=measured.input_end if measured else None,
            alerts_end=measured.alerts_end if measured else None,
            input_idle_s=now_s - self._input_grew_s,
        )
        return status_of(contact, self._clock.now_ms())

    def _take_record(self, record: AlertRecord) -> None:
        sighting = self._book.take(record)
        row = sighting.row
        if row is None:
            return
        if not sighting.is_repeat and row.live:
            self._scene.sighted(row)
        if not sighting.is_repeat and row.latency_ms is not None:
            for window in (self._latency, self._latency_now):
                window.add(self._clock.monotonic_s(), row.latency_ms)
        self.viewers.publish(self._event(row))

    def _take_measurement(self, measured: TopicsMeasured) -> None:
        now_s = self._clock.monotonic_s()
        before = self._measured.input_end if self._measured else measured.input_end
        if measured.input_end != before:
            self._input_grew_s = now_s
        if measured.input_end is not None:
            self._input_growth.add(now_s, measured.input_end)
        if measured.alerts_end is not None:
            self._alerts_growth.add(now_s, measured.alerts_end)
            self._alerts_second.add(now_s, measured.alerts_end)
        self._measured, self._lost, self._answered_s = measured, None, now_s

    def _event(self, row: Row) -> Event:
        return Event(name="alert", data=json_text(row_json(row)), id=f"{self._session}-{row.sequence}")

    def _sequence_in(self, last_event_id: str | None) -> int:
        session, _, sequence = (last_event_id or "").rpartition("-")
        is_ours = session == self._session and sequence.isascii() and sequence.isdecimal()
        return int(sequence[:18]) if is_ours else 0


def row_json(row: Row) -> dict[str, Any]:
    """A row as the page gets it."""
    kind = "undecodable" if isinstance(row.content, Undecodable) else "alert"
    place = {name: value for name, value in asdict(row).items() if name != "content"}
    return {"kind": kind, **place, **asdict(row.content)}


def json_text(value: object) -> str:
    """Compact JSON in ASCII: a lone surrogate in a payload would not survive any other encoding."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)
