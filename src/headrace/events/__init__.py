"""Event sourcing: commands are decided into events, and state is what events fold to.

    @events.decider("account")
    class Account:
        initial = Closed()

        @staticmethod
        def decide(state: State, command: Command) -> list[Event]: ...

        @staticmethod
        def evolve(state: State, event: Event) -> State: ...

    store = events.EventStore(events.MemoryJournal(), deciders=[Account])
    store.execute("account-42", Withdraw(amount=50), command_id="7f3a")

- decider, event_type, upcasting   what the user writes: pure functions and classes of events
- store                            the store's face; executing, appending, loading, reading are its parts
- codec, sealing                   between the user's events and bytes; personal fields are encrypted
- snapshots, explanation           states kept for speed, and why a state is what it is
- forgetting                       a person's key destroyed, and the receipt
- journal, records                 what is asked of the place where events are kept
- memory, postgres                 the two places
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import (
    AppendConflict,
    CommandIdReused,
    ConditionConflict,
    EventsError,
    Refused,
    SetupError,
    SubjectForgotten,
    UnreadableEvents,
    VersionConflict,
)

try:
    from headrace.events.appending import Write
    from headrace.events.decider import Decider, as_decider, decider, fold
    from headrace.events.event_type import FORGOTTEN, EventType, event
    from headrace.events.executing import Executed
    from headrace.events.explanation import Explanation, FieldChange
    from headrace.events.forgetting import ForgottenCheck, Receipt, SubjectWasForgotten
    from headrace.events.journal import Journal
    from headrace.events.loading import Loaded
    from headrace.events.memory import MemoryJournal
    from headrace.events.recorded import Recorded
    from headrace.events.records import ANY, NONE, Appended, Condition
    from headrace.events.retries import Retries
    from headrace.events.snapshots import SnapshotPolicy
    from headrace.events.store import EventStore
    from headrace.events.upcasting import Upcast, Written, added, into, renamed, upcast
except ModuleNotFoundError as error:
    lacking = (error.name or "").partition(".")[0]
    if lacking not in {"cryptography", "msgspec"}:
        raise
    raise SetupError(
        f"the event store needs an extra ({lacking} is missing): pip install 'headrace[postgres]'"
    ) from error

if TYPE_CHECKING:
    from headrace.events.postgres import PostgresJournal

__all__ = [
    "ANY",
    "FORGOTTEN",
    "NONE",
    "AppendConflict",
    "Appended",
    "CommandIdReused",
    "Condition",
    "ConditionConflict",
    "Decider",
    "EventStore",
    "EventType",
    "EventsError",
    "Executed",
    "Explanation",
    "FieldChange",
    "ForgottenCheck",
    "Journal",
    "Loaded",
    "MemoryJournal",
    "PostgresJournal",
    "Receipt",
    "Recorded",
    "Refused",
    "Retries",
    "SnapshotPolicy",
    "SubjectForgotten",
    "SubjectWasForgotten",
    "UnreadableEvents",
    "Upcast",
    "VersionConflict",
    "Write",
    "Written",
    "added",
    "as_decider",
    "decider",
    "event",
    "fold",
    "into",
    "renamed",
    "upcast",
]


def __getattr__(name: str) -> Any:
    # The client of PostgreSQL is loaded when it is first asked for: a worker that folds events needs none.
    if name == "PostgresJournal":
        from headrace.events.postgres import PostgresJournal  # noqa: PLC0415  # see above

        return PostgresJournal
    raise AttributeError(f"module 'headrace.events' has no attribute {name!r}")
