"""What the page shows around the alerts: the flow of topics and pipelines, event time, deaths, and controls.

It takes the same observations as the board, which owns it, and adds to the numbers that go out once a second.
It belongs to the event loop's thread and is not safe to use from another.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.console.decode import Alert
from headrace.console.incidents import IncidentBook
from headrace.console.observations import (
    ButtonPressed,
    ControlMoved,
    DriverKilled,
    InputSampled,
    Observation,
    TopicsMeasured,
)
from headrace.console.rates import GrowthWindow
from headrace.console.samples import SampleWindow

if TYPE_CHECKING:
    from headrace.clock import Clock
    from headrace.console.alerts import AlertCounts, Row
    from headrace.console.pipelines import Pipeline
    from headrace.console.view import View

RATE_WINDOW_S: Final = 5.0
WATERMARK_COUNT_MAX: Final = 90
"""How many seconds back the watermark is drawn."""
PRESS_COUNT_MAX: Final = 10
"""So many of the last presses of a button are remembered."""


class Scene:
    """All of it; see the top of this file."""

    def __init__(self, view: View, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._samples = SampleWindow()
        self._incidents = IncidentBook()
        self._controls = {control.name: control.value for control in view.controls}
        self._presses: dict[str, deque[int]] = {
            button.name: deque(maxlen=PRESS_COUNT_MAX) for button in view.buttons
        }
        """When buttons were pressed since this start, in milliseconds since 1970, the last time last."""
        self._growth: dict[str, GrowthWindow] = {}
        self._ends: dict[str, int] = {}
        self._pipelines: tuple[Pipeline, ...] = ()
        self._watermarks: deque[tuple[int, int]] = deque(maxlen=WATERMARK_COUNT_MAX)

    def apply(self, observation: Observation, counts: AlertCounts) -> None:
        """Take in what was observed; what is not for it changes nothing."""
        match observation:
            case TopicsMeasured():
                self._measured(observation, counts)
            case InputSampled(samples=samples):
                self._samples.add(self._clock.monotonic_s(), samples)
            case DriverKilled(pid=pid):
                self._incidents.killed(pid, self._clock.now_ms())
            case ControlMoved(name=name, value=value) if name in self._controls:
                self._controls[name] = value
            case ButtonPressed(name=name, pressed_ms=pressed_ms) if name in self._presses:
                self._presses[name].append(pressed_ms)
            case _:
                pass

    def sighted(self, row: Row) -> None:
        """An alert came for the first time."""
        sent_at_ms = row.content.sent_at_ms if isinstance(row.content, Alert) else None
        self._incidents.alert_seen(row.received_ms, sent_at_ms)

    def tick(self) -> None:
        """Remember where the watermark stands; called once a second."""
        marks = [each.watermark_ms for each in self._pipelines if each.watermark_ms is not None]
        if marks:
            self._watermarks.append((self._clock.now_ms(), min(marks)))

    def stats(self, counts: AlertCounts) -> dict[str, Any]:
        """What it adds to the numbers of the page."""
        view, now_s = self._view, self._clock.monotonic_s()
        return {
            "title": view.title,
            "is_demo": view.is_demo,
            "roles": {
                "input": view.input,
                "alerts": view.alerts,
                "late": view.late,
                "dead_letters": view.dead_letters,
            },
            "topics": {
                topic: {"end": end, "per_s": self._per_s(topic, now_s)} for topic, end in self._ends.items()
            },
            "pipelines": [asdict(pipeline) for pipeline in self._pipelines],
            "event_time": {
                "is_known": view.event_time is not None,
                "has_places": view.latitude is not None,
                "watermarks": list(self._watermarks),
                **self._samples.summary(now_s),
            },
            "incidents": self._incidents.as_json(counts),
            "incident_count": self._incidents.count,
            "controls": [
                asdict(replace(control, value=self._controls[control.name])) for control in view.controls
            ],
            "buttons": [
                {**asdict(button), "presses_ms": list(self._presses[button.name])} for button in view.buttons
            ],
        }

    def _measured(self, measured: TopicsMeasured, counts: AlertCounts) -> None:
        own = {self._view.input: measured.input_end, self._view.alerts: measured.alerts_end}
        self._ends = {topic: end for topic, end in own.items() if end is not None} | dict(measured.others)
        now_s = self._clock.monotonic_s()
        for topic, end in self._ends.items():
            self._growth.setdefault(topic, GrowthWindow(window_s=RATE_WINDOW_S)).add(now_s, end)
        self._growth = {topic: growth for topic, growth in self._growth.items() if topic in self._ends}
        self._pipelines = measured.pipelines
        self._incidents.see(measured.pipelines, counts, self._clock.now_ms())

    def _per_s(self, topic: str, now_s: float) -> float | None:
        per_s = self._growth[topic].per_second(now_s)
        return None if per_s is None else round(per_s, 2)
