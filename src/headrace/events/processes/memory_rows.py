"""The rows of a process in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from headrace.events.processes.rows import ERASED, DueTimer, Outcome, SentCommand, Told
from headrace.events.projections.memory_place import MemoryWork


class MemoryRows:
    """Rows as values of dicts."""

    def __init__(self, work: MemoryWork) -> None:
        self._instances = work.tables["instances"]
        self._commands = work.tables["commands"]
        self._timers = work.tables["timers"]
        self._personal = work.tables["personal"]

    def state(self, instance: str) -> tuple[str, bytes] | None:
        return self._instances.get(instance)

    def keep_state(self, instance: str, state: tuple[str, bytes] | None) -> None:
        self._instances.pop(instance, None)
        if state is not None:
            self._instances[instance] = state

    def add_command(self, command: SentCommand) -> None:
        self._commands.setdefault(command.id, command)

    def pending(self, limit: int) -> list[SentCommand]:
        return [each for each in self._commands.values() if each.outcome is Outcome.PENDING][:limit]

    def command(self, command_id: UUID) -> SentCommand:
        found: SentCommand = self._commands[command_id]
        return found

    def note(self, command_id: UUID, outcome: Outcome, reason: str) -> None:
        found = self.command(command_id)
        self._commands[command_id] = replace(
            found, outcome=outcome, reason=reason, attempt_count=found.attempt_count + 1
        )

    def failed(self) -> list[SentCommand]:
        return [each for each in self._commands.values() if each.outcome is Outcome.FAILED]

    def set_timer(self, instance: str, name: str, due_at: datetime | None) -> None:
        self._timers.pop((instance, name), None)
        if due_at is not None:
            self._timers[instance, name] = due_at

    def due_timers(self, now: datetime, limit: int) -> list[DueTimer]:
        due = [
            DueTimer(instance=instance, name=name, due_at=due_at)
            for (instance, name), due_at in self._timers.items()
            if due_at <= now
        ]
        return sorted(due, key=lambda timer: (timer.due_at, timer.instance, timer.name))[:limit]

    def told(self, instance: str) -> list[Told]:
        return list(self._personal.get(instance, ()))

    def keep_told(self, instance: str, told: Told) -> None:
        self.drop_told(instance, told.subject)
        self._personal[instance] = (*self._personal.get(instance, ()), told)

    def drop_told(self, instance: str, subject: str) -> None:
        kept = tuple(told for told in self._personal.pop(instance, ()) if told.subject != subject)
        if kept:
            self._personal[instance] = kept

    def mark_forgotten(self, subject: str) -> list[str]:
        found = [
            (instance, told)
            for instance, every in self._personal.items()
            for told in every
            if told.subject == subject
        ]
        for instance, told in found:
            self.keep_told(instance, replace(told, is_forgotten=True))
        return sorted(instance for instance, _ in found)

    def forgotten(self) -> list[tuple[str, str]]:
        return sorted(
            (instance, told.subject)
            for instance, every in self._personal.items()
            for told in every
            if told.is_forgotten and told.texts
        )

    def erase_settled(self, instance: str) -> None:
        for each in self._sent(instance):
            if each.outcome is not Outcome.PENDING:
                self._commands[each.id] = replace(each, data=ERASED, reason="")

    def outcomes(self, instance: str) -> set[Outcome]:
        return {each.outcome for each in self._sent(instance)}

    def _sent(self, instance: str) -> list[SentCommand]:
        return [each for each in self._commands.values() if each.instance == instance]

    def instances(self) -> dict[str, tuple[str, bytes]]:
        return dict(self._instances)
