"""The rows of a process in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from headrace.events.processes.rows import DueTimer, Outcome, SentCommand
from headrace.events.projections.memory_place import MemoryWork


class MemoryRows:
    """Rows as values of dicts."""

    def __init__(self, work: MemoryWork) -> None:
        self._instances = work.tables["instances"]
        self._commands = work.tables["commands"]
        self._timers = work.tables["timers"]

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

    def instances(self) -> dict[str, tuple[str, bytes]]:
        return dict(self._instances)
