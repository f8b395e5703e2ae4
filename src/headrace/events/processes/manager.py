"""Runs processes: events, refusals and timers in, commands out.

    manager = ProcessManager(store, PostgresPlace(dsn), Transfers)
    with manager.running(): ...

A process is a subscription whose data are its instances, the commands that they have sent, and their timers.

1. An event steps its instance. State, commands, timers and the position are kept in one transaction.
2. A command that is kept is executed by the store, under its id, and then what became of it is noted. Whoever
   is killed in between has it executed again, which the store knows by the id and does not do twice.
3. A refused command's id is used up in the store by an append of nothing, so that no other runner, for whom
   the state has changed meanwhile, executes it. Then the refusal is noted in the transaction in which it
   steps the instance.
4. A timer that is due is gone in the transaction in which it steps the instance. It is due once the events
   of the time before it have been taken: after a pause, what was recorded in time still cancels it.

So each input has its effect once, wherever a process is killed, and however many processes run it.

A command that can be neither executed nor refused, because it is malformed, say, is tried a few times and
kept as failed (`failed_commands`). An event at which the process's own code fails stops it, since to leave
one out would leave things half done; `poison` says otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.clock import Clock, SystemClock
from headrace.errors import CommandIdReused, EventsError, HeadraceError, ProjectionStopped, Refused
from headrace.events.forgetting import SubjectWasForgotten
from headrace.events.processes.codec import NamedValues
from headrace.events.processes.forgetting import personal_texts
from headrace.events.processes.memory_rows import MemoryRows
from headrace.events.processes.personal import Personal
from headrace.events.processes.postgres_rows import ADDED, CREATE, PostgresRows
from headrace.events.processes.process import CommandRefused, Process, TimedOut, declared
from headrace.events.processes.rows import DueTimer, Outcome, ProcessRows, SentCommand
from headrace.events.processes.step import Input, step
from headrace.events.projections.memory_place import MemoryWork
from headrace.events.projections.place import Generation, Place, live
from headrace.events.projections.projection import Poison, Projection
from headrace.events.projections.running import keep_going
from headrace.events.projections.source import page_reader
from headrace.events.recorded import Recorded
from headrace.events.store import EventStore
from headrace.events.subscription import Subscription
from headrace.failpoints import hit

PENDING_COUNT_MAX: Final = 100
"""So many commands are executed before events are looked at again."""
TIMER_COUNT_MAX: Final = 100
COMMAND_ATTEMPT_COUNT_MAX: Final = 5
REFUSED_BEFORE: Final = "it was refused before"
"""The reason of a refusal whose first runner died before it could keep the reason."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ProcessManager:
    """Runs one process. Several may run the same one, in other processes or threads."""

    def __init__(
        self,
        store: EventStore,
        place: Place,
        process: Process | type,
        *,
        poison: Poison | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._place = place
        process = declared(process)
        self._process = process
        self._clock = clock or SystemClock()
        self._states = NamedValues(f"states of process {process.name}", process.states)
        self._personal = Personal(process.name, store, self._states)
        self._commands = {
            category: NamedValues(f"commands of {category}", decider.commands)
            for category, decider in store.deciders.items()
        }
        self._projection = Projection(
            name=process.name,
            handle=self._handle,
            create=CREATE.format(name=process.name),
            added={
                each.format(name=process.name): made.format(name=process.name) for each, made in ADDED.items()
            },
            poison=poison or Poison(then="stop"),
        )
        self._subscription = Subscription(page_reader(store, self._projection), place, self._projection)
        self.stopped: HeadraceError | None = None
        """Why it stands still, where it was run by this object and does."""
        place.prepare(self._projection)

    def run_once(self) -> bool:
        """Take events, timers and commands, some of each. Whether there was anything to do."""
        asked_at = self._now()
        taken = self._subscription.run_once(live(self._place, self._process.name))
        took_timers = self._take_timers(self._known_until(asked_at, taken))
        took_commands = self._execute_pending()
        return taken is not None or took_timers or took_commands

    def catch_up(self) -> None:
        """Go on until there is nothing to do."""
        while self.run_once():
            pass

    @contextmanager
    def running(self) -> Iterator[ProcessManager]:
        """Run it in a thread while the context lasts. Should it stop on an error, `stopped` says why."""
        stop = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(stop,), name=f"headrace-process-{self._process.name}"
        )
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def instances(self) -> Mapping[str, Any]:
        """The states of those that have begun and are not done."""
        with self._rows() as rows:
            return {name: self._states.read(*kept) for name, kept in rows.instances().items()}

    def failed_commands(self) -> list[SentCommand]:
        """The commands that could be neither executed nor refused."""
        with self._rows() as rows:
            return rows.failed()

    def not_forgotten(self) -> Mapping[str, Sequence[str]]:
        """Instances that still have a text of persons who are forgotten, and of whom.

        It stands in a command that is still to be executed, or where a state can't be without it.
        """
        with self._rows() as rows:
            found = rows.forgotten()
        return {
            instance: tuple(subject for each, subject in found if each == instance) for instance, _ in found
        }

    @property
    def position(self) -> int:
        """Of the last event that it has seen."""
        return live(self._place, self._process.name).position

    def _run(self, stop: threading.Event) -> None:
        self.stopped = None
        try:
            keep_going(self.run_once, stop)
        except HeadraceError as error:
            self.stopped = error
        except Exception as error:  # noqa: BLE001 - whatever it is, who asks is told
            self.stopped = self._standstill(error)

    def _handle(self, work: Any, event: Recorded) -> None:
        if isinstance(event.data, SubjectWasForgotten):
            self._personal.forget(self._rows_of(work), event.data.subject)
        instance = self._process.correlate(event)
        if instance is not None:
            given = Input(
                id=f"{event.id}/{event.part}",
                data=event.data,
                at=event.recorded_at,
                correlation_id=event.correlation_id,
            )
            rows = self._rows_of(work)
            self._personal.add(rows, instance, personal_texts(self._store.codec, event.data))
            self._step(rows, instance, given)

    def _step(self, rows: ProcessRows, instance: str, given: Input) -> None:
        kept = rows.state(instance)
        before = self._process.initial if kept is None else self._states.read(*kept)
        stepped = step(self._process, before, given)
        is_over = stepped.state == self._process.initial
        rows.keep_state(instance, None if is_over else self._states.write(stepped.state))
        for command in stepped.commands:
            name, data = self._commands_of(command.stream).write(command.command)
            rows.add_command(
                SentCommand(
                    id=command.id,
                    instance=instance,
                    stream=command.stream,
                    type=name,
                    data=data,
                    causation_id=given.id,
                    correlation_id=given.correlation_id,
                )
            )
        for timer, due_at in stepped.timers.items():
            rows.set_timer(instance, timer, due_at)
        self._personal.tidy(rows, instance, is_logged=False)

    def _known_until(self, asked_at: datetime, taken: Generation | None) -> datetime:
        """Up to when all that has happened is known: until the last event, or until now."""
        if taken is None:
            return asked_at
        (last,) = self._store.journal.read_all(after=taken.position - 1, limit=1)
        return min(asked_at, last.recorded_at)

    def _take_timers(self, until: datetime) -> bool:
        with self._rows() as rows:
            due = rows.due_timers(until, TIMER_COUNT_MAX)
        for timer in due:
            self._take_timer(timer, until)
        return bool(due)

    def _take_timer(self, timer: DueTimer, until: datetime) -> None:
        with self._rows() as rows:
            # An event may have cancelled it meanwhile, or another process taken it.
            if timer not in rows.due_timers(until, TIMER_COUNT_MAX):
                return
            rows.set_timer(timer.instance, timer.name, None)
            given = Input(
                id=f"timer/{timer.instance}/{timer.name}/{timer.due_at.isoformat()}",
                data=TimedOut(name=timer.name),
                at=timer.due_at,
            )
            self._step(rows, timer.instance, given)
            hit("events.process.timer")

    def _execute_pending(self) -> bool:
        with self._rows() as rows:
            pending = rows.pending(PENDING_COUNT_MAX)
        for sent in pending:
            self._execute(sent)
        return bool(pending)

    def _execute(self, sent: SentCommand) -> None:
        command = self._commands_of(sent.stream).read(sent.type, sent.data)
        try:
            outcome, reason = self._outcome(sent, command)
        except EventsError as error:
            if error.retriable:
                return
            is_last = sent.attempt_count + 1 >= COMMAND_ATTEMPT_COUNT_MAX
            outcome, reason = Outcome.FAILED if is_last else Outcome.PENDING, str(error)
        hit("events.process.executed")
        self._note(sent, command, outcome, reason)

    def _outcome(self, sent: SentCommand, command: Any) -> tuple[Outcome, str]:
        """Have a command executed or refused, for good: whoever asks again is told the same."""
        try:
            self._store.execute(
                sent.stream,
                command,
                command_id=sent.id,
                causation_id=sent.causation_id,
                correlation_id=sent.correlation_id,
            )
        except Refused as refused:
            self._keep_refusal(sent)
            return Outcome.REFUSED, str(refused)
        except CommandIdReused:
            # Either it was refused before, or the id is that of a command of somebody else, which raises.
            self._keep_refusal(sent)
            return Outcome.REFUSED, REFUSED_BEFORE
        return Outcome.DONE, ""

    def _keep_refusal(self, sent: SentCommand) -> None:
        """Use the command's id for an append of nothing, so that nobody executes it after this."""
        self._store.append(sent.stream, (), command_id=sent.id)

    def _note(self, sent: SentCommand, command: Any, outcome: Outcome, reason: str) -> None:
        with self._rows() as rows:
            # Another process may have executed it, too, and been faster to say so.
            kept = rows.command(sent.id).outcome
            is_late = kept is Outcome.FAILED and outcome is Outcome.DONE
            if kept is not Outcome.PENDING and not is_late:
                return
            rows.note(sent.id, outcome, reason)
            if outcome is Outcome.REFUSED:
                refused = CommandRefused(stream=sent.stream, command=command, reason=reason)
                given = Input(
                    id=f"refused/{sent.id}",
                    data=refused,
                    at=self._now(),
                    correlation_id=sent.correlation_id,
                )
                self._step(rows, sent.instance, given)
            if outcome is not Outcome.PENDING:
                self._personal.tidy(rows, sent.instance, is_logged=True)

    def _now(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self._clock.now_ms())

    @contextmanager
    def _rows(self) -> Iterator[ProcessRows]:
        number = live(self._place, self._process.name).number
        try:
            with self._place.begin(self._projection, number, alone=True) as batch:
                yield self._rows_of(batch.work_for(None))
        except HeadraceError:
            raise
        except Exception as error:
            raise self._standstill(error) from error

    def _standstill(self, error: Exception) -> ProjectionStopped:
        return ProjectionStopped(
            f"process {self._process.name} stands still: {type(error).__name__}: {error}; mend the code and "
            "start it again"
        )

    def _rows_of(self, work: Any) -> ProcessRows:
        if isinstance(work, MemoryWork):
            return MemoryRows(work)
        return PostgresRows(work, self._process.name)

    def _commands_of(self, stream: str) -> NamedValues:
        return self._commands[self._store.decider_of(stream).category]
