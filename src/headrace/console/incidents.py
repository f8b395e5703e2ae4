"""What happened when a driver died, from the deaths that the page sees.

A death is seen when a pipeline that ran with one process is seen without it: crashed, restarting, or running
with another process. Pipelines of one driver die together, and make one incident:

    died_ms          when somebody pressed the button, or when the death was first seen
    running_ms       since when all its pipelines run again, with another process
    first_alert_ms   when the first alert after that was seen
    caught_up_count  how many alerts came whose cause was written between death and recovery: while nobody
                     was there to see it, it waited in the log

Counts of alerts and repeats are taken at death, so that the page can say what came since. A driver that
stopped or failed by itself is no incident: its status tells why. The newest INCIDENT_COUNT_MAX are kept.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.console.alerts import AlertCounts
    from headrace.console.pipelines import Pipeline

INCIDENT_COUNT_MAX: Final = 10
_AT_WORK: Final = frozenset({"starting", "running"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One death of a driver."""

    number: int
    pid: int
    pipelines: tuple[str, ...]
    by_hand: bool
    """Whether it was the button."""
    died_ms: int
    running_ms: int | None = None
    first_alert_ms: int | None = None
    caught_up_count: int = 0
    alert_count_before: int
    repeat_count_before: int


class IncidentBook:
    """The deaths seen so far. Not safe to share between threads."""

    def __init__(self) -> None:
        self._incidents: deque[Incident] = deque(maxlen=INCIDENT_COUNT_MAX)
        self._drivers: dict[str, int] = {}
        """The process that each pipeline was last seen at work with."""
        self._killed_ms: dict[int, int] = {}
        self.count = 0

    def killed(self, pid: int, now_ms: int) -> None:
        """Somebody pressed the button; the death itself is seen later."""
        self._killed_ms[pid] = now_ms
        while len(self._killed_ms) > INCIDENT_COUNT_MAX:
            self._killed_ms.pop(next(iter(self._killed_ms)))

    def see(self, pipelines: Sequence[Pipeline], counts: AlertCounts, now_ms: int) -> None:
        """Take in what the pipelines do now."""
        at_work = {each.name: each.pid for each in pipelines if each.state in _AT_WORK}
        ended = {each.name for each in pipelines if each.state in {"stopped", "failed"}}
        lost: dict[int, list[str]] = {}
        for name, pid in self._drivers.items():
            if at_work.get(name) != pid and name not in ended:
                lost.setdefault(pid, []).append(name)
        for pid, names in lost.items():
            self._died(pid, names, counts, now_ms)
        self._recovered({each.name: each for each in pipelines if each.state == "running"})
        self._drivers = at_work

    def alert_seen(self, received_ms: int, sent_at_ms: int | None) -> None:
        """An alert came for the first time."""
        for index, incident in enumerate(self._incidents):
            self._incidents[index] = _with_alert(incident, received_ms, sent_at_ms)

    def as_json(self, counts: AlertCounts) -> list[dict[str, Any]]:
        """The incidents, newest first, each with what came since."""
        return [
            {
                **asdict(incident),
                "alerts_since": counts.alert_count - incident.alert_count_before,
                "repeats_since": counts.repeat_count - incident.repeat_count_before,
            }
            for incident in reversed(self._incidents)
        ]

    def _died(self, pid: int, names: list[str], counts: AlertCounts, now_ms: int) -> None:
        self.count += 1
        killed_ms = self._killed_ms.pop(pid, None)
        self._incidents.append(
            Incident(
                number=self.count,
                pid=pid,
                pipelines=tuple(sorted(names)),
                by_hand=killed_ms is not None,
                died_ms=now_ms if killed_ms is None else killed_ms,
                alert_count_before=counts.alert_count,
                repeat_count_before=counts.repeat_count,
            )
        )

    def _recovered(self, running: Mapping[str, Pipeline]) -> None:
        for index, incident in enumerate(self._incidents):
            if incident.running_ms is not None or not running.keys() >= set(incident.pipelines):
                continue
            again = [running[name] for name in incident.pipelines]
            if all(each.pid != incident.pid for each in again):
                since_ms = max(each.since_ms for each in again)
                self._incidents[index] = replace(incident, running_ms=max(since_ms, incident.died_ms))


def _with_alert(incident: Incident, received_ms: int, sent_at_ms: int | None) -> Incident:
    running_ms = incident.running_ms
    if sent_at_ms is not None and incident.died_ms <= sent_at_ms < (running_ms or math.inf):
        incident = replace(incident, caught_up_count=incident.caught_up_count + 1)
    if running_ms is not None and incident.first_alert_ms is None and received_ms >= running_ms:
        incident = replace(incident, first_alert_ms=received_ms)
    return incident
