"""Executing a command: load, decide, append; again where others came first."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from headrace.errors import AppendConflict, HeadraceError, Refused, StoreUnavailable, VersionConflict
from headrace.events.appending import Appender, Write
from headrace.events.conflicts import version_conflict
from headrace.events.decider import Decider
from headrace.events.journal import Journal
from headrace.events.loading import Loader
from headrace.events.reading import Reader
from headrace.events.recorded import About
from headrace.events.records import ANY, Appended, CommandMark
from headrace.events.retries import Retries
from headrace.events.turns import Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """What a command has come to."""

    stream: str
    version: int
    """Of the stream, with the command's events."""
    position: int
    """Of the last event that it made, or of the log where it made none: who has read so far has seen it."""
    events: tuple[Any, ...]
    is_repeat: bool = False
    """Whether the command was known already, so that this is its first result and nothing was appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A command, what it is for, and what is told of it."""

    decider: Decider
    stream: str
    command: Any
    mark: CommandMark | None
    expected: int
    about: About


class Executor:
    """Executes commands. Safe to use from any thread."""

    def __init__(self, journal: Journal, loader: Loader, appender: Appender, reader: Reader) -> None:
        self._journal = journal
        self._loader = loader
        self._appender = appender
        self._reader = reader
        self._turns = Turns()

    def execute(self, request: Request, retries: Retries) -> Executed:
        """Decide and append, as often as it may be tried."""
        for attempt in count(1):
            try:
                with self._turns.of(request.stream):
                    return self._attempt(request)
            except (AppendConflict, StoreUnavailable) as error:
                if attempt >= retries.attempts or not _may_retry(error, request):
                    raise
            time.sleep(retries.pause_s(attempt, random.random()))  # noqa: S311  # keeps writers apart
        raise AssertionError("attempts are counted without end")

    def _attempt(self, request: Request) -> Executed:
        try:
            loaded = self._loader.load(request.decider, request.stream)
            if request.expected not in {ANY, loaded.version}:
                raise version_conflict(request.stream, request.expected, loaded.version)
            events = tuple(request.decider.decide(loaded.state, request.command))
            if not events and request.mark is None:
                return Executed(
                    stream=request.stream, version=loaded.version, position=self._journal.head(), events=()
                )
            write = Write(request.stream, events, loaded.version)
            appended = self._appender.append((write,), mark=request.mark, about=request.about)
        except (Refused, VersionConflict) as error:
            # What was taken the first time may well be refused by the state that it has made.
            known = None if request.mark is None else self._journal.command(request.mark)
            if known is None:
                raise self._told(error) from error.__cause__
            appended, events = known, ()
        return self._executed(request, appended, events)

    def _executed(self, request: Request, appended: Appended, events: Sequence[Any]) -> Executed:
        return Executed(
            stream=request.stream,
            version=appended.versions[request.stream],
            position=appended.position,
            events=self._events_of(appended) if appended.is_repeat else tuple(events),
            is_repeat=appended.is_repeat,
        )

    def _events_of(self, appended: Appended) -> tuple[Any, ...]:
        count_ = appended.position - appended.after
        page = self._reader.all(after=appended.after, limit=count_) if count_ else []
        return tuple(event.data for event in page)

    def _told(self, error: HeadraceError) -> HeadraceError:
        return self._reader.told(error) if isinstance(error, AppendConflict) else error


def _may_retry(error: HeadraceError, request: Request) -> bool:
    if isinstance(error, AppendConflict):
        return request.expected == ANY
    # The append may have happened: only a command that would be recognised can be sent again.
    return request.mark is not None
