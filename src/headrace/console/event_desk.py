"""An event store for the page: what happened, what follows from it, commands, and work over a whole history.

Deciders are known by the names that they have in their file. The first one of a category decides and shows
the state; all of them can be compared. Safe to use from several threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec

from headrace.clock import Clock, SystemClock
from headrace.console.event_forms import command_of, form_of
from headrace.console.event_job import EventJob, Tell
from headrace.errors import EventsError
from headrace.events import Decider, EventStore, Recorded
from headrace.events.comparison import Comparison
from headrace.events.decider import category_of
from headrace.events.explanation import explain, fields_of
from headrace.logs import fields

ACTOR: Final = "console"
EVENT_COUNT: Final = 200
"""So many events of a stream are shown, the newest ones."""
STREAM_COUNT: Final = 200

logger: Final = logging.getLogger("headrace.console.event_desk")


class Rebuilder(Protocol):
    """Builds read models anew; see headrace.events.projections."""

    def rebuild(self, name: str, on_progress: Callable[[int], None]) -> Any:
        """Build one anew, and have it take the place of the present one."""
        ...


class StoreDesk:
    """What the page may ask of an event store; what each call means is said in event_api.py."""

    def __init__(
        self,
        store: EventStore,
        deciders: Mapping[str, Decider],
        *,
        rebuilder: Rebuilder | None = None,
        projections: Iterable[str] = (),
        clock: Clock | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._deciders = dict(deciders)
        self._rebuilder = rebuilder
        self._projections = list(projections) if rebuilder is not None else []
        self._job = EventJob(clock or SystemClock())
        self._on_close = on_close

    def describe(self) -> dict[str, Any]:
        """Deciders, commands and read models."""
        described = [
            {
                "name": name,
                "category": decider.category,
                "commands": [form_of(command) for command in decider.commands],
            }
            for name, decider in self._deciders.items()
        ]
        return {"deciders": described, "projections": self._projections}

    def streams(self, category: str) -> dict[str, Any]:
        """Streams by name, and whether there are more."""
        found = self._store.journal.streams(category=category or None, limit=STREAM_COUNT + 1)
        shown = [{"stream": each.stream, "version": each.version} for each in found[:STREAM_COUNT]]
        return {"streams": shown, "has_more": len(found) > STREAM_COUNT}

    def stream(self, name: str) -> dict[str, Any]:
        """The newest events of a stream."""
        category_of(name)
        version = self._store.journal.stream_version(name)
        after = max(0, version - EVENT_COUNT)
        events = [shown_event(each) for each in self._store.read_stream(name, after_version=after)]
        # It may have grown since its version was asked for.
        version = max([version, *(each["version"] for each in events)])
        return {"stream": name, "version": version, "first_version": after + 1, "events": events}

    def state(self, name: str, version: int) -> dict[str, Any]:
        """The state after so many events, and which of them made each field what it is."""
        decider = self._store.decider_of(name)
        recorded = self._store.read_stream(name, limit=version) if version else iter(())
        explained = explain(decider, name, recorded)
        shown = []
        for field, value in fields_of(explained.state).items():
            cause = explained.cause(field)
            shown.append(
                {
                    "name": field or "state",
                    "value": plain(value),
                    "version": None if cause is None else cause.version,
                    "type": None if cause is None else cause.type,
                }
            )
        return {"stream": name, "version": explained.version, "fields": shown}

    def execute(self, name: str, command: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Have a command decided."""
        commands = {each.__name__: each for each in self._store.decider_of(name).commands}
        if command not in commands:
            raise EventsError(f"there is no command {command!r}: there are {', '.join(commands)}")
        wanted = command_of(commands[command], given)
        done = self._store.execute(name, wanted, command_id=uuid4(), actor=ACTOR)
        logger.info("sent %s to %s, as the page asked", command, name, extra=fields(stream=name))
        first_version = done.version - len(done.events)
        events = islice(self._store.read_stream(name, after_version=first_version), len(done.events))
        return {"version": done.version, "events": [shown_event(each) for each in events]}

    def replay(self, projection: str) -> dict[str, Any]:
        """Begin to build a read model anew."""
        rebuilder = self._rebuilder
        if rebuilder is None or projection not in self._projections:
            known = ", ".join(self._projections) or "none"
            raise EventsError(f"there is no read model {projection!r}: there are {known}")

        def work(tell: Tell) -> dict[str, Any]:
            head = self._store.journal.head()
            tell(0, head)
            made = rebuilder.rebuild(projection, lambda position: tell(position, head))
            return {"words": f"{projection} was built anew, as generation {made.number}:"}

        logger.warning("building %s anew, as the page asked", projection, extra=fields(projection=projection))
        return self._job.start("replay", work).shown()

    def compare(self, left: str, right: str) -> dict[str, Any]:
        """Begin to run two deciders over the same history."""
        for name in (left, right):
            if name not in self._deciders:
                raise EventsError(f"there is no decider {name!r}: there are {', '.join(self._deciders)}")
        comparison = Comparison(self._deciders[left], self._deciders[right])

        def work(tell: Tell) -> dict[str, Any]:
            self._read_all(tell, comparison.take)
            found = comparison.result()
            return {"left": left, "right": right, **msgspec.to_builtins(found)}

        return self._job.start("compare", work).shown()

    def job(self) -> dict[str, Any]:
        """How far the last of these is."""
        return self._job.status().shown()

    def close(self) -> None:
        """Give up what is under way."""
        self._job.close()
        self._on_close()

    def _read_all(self, tell: Tell, take: Callable[[str, Any], None]) -> None:
        """Every event up to the end as it is now, in order."""
        head, position = self._store.journal.head(), 0
        tell(0, head)
        while position < head:
            page = self._store.read_all(position)
            for event in page:
                if event.position <= head:
                    take(event.stream, event.data)
            position = page[-1].position if page else head
            tell(min(position, head), head)


def shown_event(event: Recorded) -> dict[str, Any]:
    """An event as the page gets it. Its type is that of today, which an old one is read as."""
    return {
        "position": event.position,
        "version": event.version,
        "type": event.type,
        "recorded_ms": int(event.recorded_at.timestamp() * 1000),
        "actor": event.actor,
        "data": plain(event.data),
    }


def plain(value: Any) -> Any:
    """As JSON has it; a state may hold what an event can't."""
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError):
        return repr(value)
