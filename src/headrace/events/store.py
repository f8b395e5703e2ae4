"""The event store: deciders over a journal.

    store = EventStore(MemoryJournal(), deciders=[Account])
    store.execute("account-42", Withdraw(amount=50), command_id="7f3a")
    store.load("account-42").state

A command that is refused is not remembered: nothing has happened. The same id may be sent again, and is
decided on the state of that time. A command that was taken is remembered by its id, also when it made no
event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, Unpack
from uuid import UUID

from headrace.errors import AppendConflict, EventsError
from headrace.events.appending import Appender, Write, mark_of_command, mark_of_writes
from headrace.events.codec import EventCodec
from headrace.events.decider import Decider, as_decider, category_of
from headrace.events.executing import Executed, Executor, Request
from headrace.events.explanation import Explanation, explain
from headrace.events.forgetting import (
    ForgottenCheck,
    Receipt,
    SubjectWasForgotten,
    forget,
    verify_forgotten,
)
from headrace.events.journal import Journal
from headrace.events.loading import Loaded, Loader, Until
from headrace.events.reading import Reader
from headrace.events.recorded import About, Recorded
from headrace.events.records import ANY, READ_EVENTS_MAX, Appended, Condition, TypeCount
from headrace.events.retries import Retries
from headrace.events.snapshots import SnapshotPolicy
from headrace.events.upcasting import Upcast

RETRIES: Final = Retries()


class EventStore:
    """Decides commands, appends events, and tells what they make. Safe to use from any thread."""

    def __init__(
        self,
        journal: Journal,
        deciders: Iterable[Decider | type] = (),
        *,
        types: Iterable[type] = (),
        upcasts: Iterable[Upcast] = (),
        snapshots: SnapshotPolicy | None = None,
    ) -> None:
        """Use a journal, which stays the caller's to close.

        `types` are classes of events that no decider names. Call `check_readable` once at start.
        """
        self.journal = journal
        self.deciders = {each.category: each for each in map(as_decider, deciders)}
        classes = [*(event for each in self.deciders.values() for event in each.events), *types]
        every = [*(step for each in self.deciders.values() for step in each.upcasts), *upcasts]
        self.codec = EventCodec([*classes, SubjectWasForgotten], every)
        self._reader = Reader(journal, self.codec)
        self._loader = Loader(journal, self.codec, snapshots or SnapshotPolicy(), self.deciders.values())
        self._appender = Appender(journal, self.codec)
        self._executor = Executor(journal, self._loader, self._appender, self._reader)

    def execute(
        self,
        stream: str,
        command: Any,
        *,
        command_id: str | UUID | None = None,
        expected: int = ANY,
        retries: Retries = RETRIES,
        **about: Unpack[About],
    ) -> Executed:
        """Decide a command and append its events. Raises Refused.

        Where others append at the same time, it is decided again on what they appended, as often as `retries`
        says. With an `expected` version it is decided on that version or not at all: VersionConflict.
        """
        request = Request(
            decider=self.decider_of(stream),
            stream=stream,
            command=command,
            mark=mark_of_command(command_id, stream, command),
            expected=expected,
            about=about,
        )
        return self._executor.execute(request, retries)

    def append(
        self,
        stream: str,
        events: Sequence[Any],
        *,
        expected: int = ANY,
        condition: Condition | Sequence[Condition] = (),
        command_id: str | UUID | None = None,
        **about: Unpack[About],
    ) -> Appended:
        """Append events to a stream, without a decider. Raises VersionConflict or ConditionConflict."""
        write = Write(stream, events, expected)
        return self.append_many([write], condition=condition, command_id=command_id, **about)

    def append_many(
        self,
        writes: Sequence[Write],
        *,
        condition: Condition | Sequence[Condition] = (),
        command_id: str | UUID | None = None,
        **about: Unpack[About],
    ) -> Appended:
        """Append events to several streams, all or nothing."""
        conditions = (condition,) if isinstance(condition, Condition) else tuple(condition)
        mark = mark_of_writes(command_id, writes, conditions)
        try:
            return self._appender.append(writes, conditions=conditions, mark=mark, about=about)
        except AppendConflict as conflict:
            raise self._reader.told(conflict, conditions) from None

    def load(self, stream: str) -> Loaded:
        """The state of an aggregate now; the initial one, at version 0, if it has no event."""
        return self._loader.load(self.decider_of(stream), stream)

    def as_of(
        self,
        stream: str,
        *,
        time: datetime | None = None,
        version: int | None = None,
        position: int | None = None,
    ) -> Loaded:
        """The state that an aggregate had at a time, at a version of its own, or at a position of the log."""
        given = [each for each in (time, version, position) if each is not None]
        if len(given) != 1:
            raise EventsError("say one of time, version and position: what the state was as of")
        decider = self.decider_of(stream)
        if version is not None:
            return self._loader.load(decider, stream, Until(version=version))
        at = self.journal.position_at(_aware(time)) if time is not None else position
        return self._loader.load(decider, stream, Until(position=at))

    def explain(self, stream: str) -> Explanation:
        """Which events have made each field of the state what it is."""
        return explain(self.decider_of(stream), stream, self.read_stream(stream))

    def read_stream(
        self, stream: str, *, after_version: int = 0, limit: int | None = None
    ) -> Iterator[Recorded]:
        """The events of a stream, oldest first."""
        return self._reader.stream(stream, after_version=after_version, limit=limit)

    def read_all(
        self,
        after_position: int = 0,
        *,
        types: Sequence[str | type] = (),
        tags: Sequence[str] = (),
        limit: int = READ_EVENTS_MAX,
    ) -> list[Recorded]:
        """The next events after a position, in the order of their commits.

        `types` are those under which events are stored. No more than READ_EVENTS_MAX are given at once; none,
        if there is none yet. No later read gives an event before the last one of these.
        """
        names = [self.codec.name_of(each) if isinstance(each, type) else each for each in types]
        return self._reader.all(after=after_position, types=names, tags=tags, limit=limit)

    def versions_report(self) -> list[TypeCount]:
        """How many events of each type and version are stored. Reads all of them."""
        return self.journal.types()

    def check_readable(self) -> None:
        """Raise UnreadableEvents if a type or a version is stored that nothing here reads."""
        self.codec.check_readable(self.journal.stored_types())

    def forget(self, subject: str, **about: Unpack[About]) -> Receipt:
        """Make the personal data of somebody unreadable for good."""
        return forget(self.journal, self.codec, subject, about)

    def verify_forgotten(self, subject: str, texts: Sequence[str] = ()) -> ForgottenCheck:
        """Look through all events and snapshots for what is left of somebody. Reads all events."""
        return verify_forgotten(self.journal, subject, texts)

    def decider_of(self, stream: str) -> Decider:
        """The decider of a stream's category."""
        category = category_of(stream)
        decider = self.deciders.get(category)
        if decider is None:
            known = ", ".join(sorted(self.deciders)) or "none"
            raise EventsError(f"{stream!r} is of a category that no decider has: there are {known}")
        return decider


def _aware(time: datetime) -> datetime:
    if time.tzinfo is None:
        raise EventsError(f"{time} is a time of no time zone: say which, for example UTC")
    return time
