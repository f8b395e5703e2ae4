"""The rows of a process in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from headrace.events.processes.rows import ERASED, DueTimer, Outcome, SentCommand
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

    def add_personal(self, instance: str, subject: str, texts: Collection[str]) -> None:
        known, is_forgotten = self._personal.get((subject, instance), (frozenset(), False))
        self._personal[subject, instance] = (known | frozenset(texts), is_forgotten)

    def mark_forgotten(self, subject: str) -> list[str]:
        found = [key for key in self._personal if key[0] == subject]
        for key in found:
            self._personal[key] = (self._personal[key][0], True)
        return sorted(instance for _, instance in found)

    def forgotten_texts(self, instance: str) -> list[str] | None:
        found = [self._personal[key][0] for key in self._forgotten(instance)]
        return sorted(frozenset().union(*found)) if found else None

    def erase_settled(self, instance: str) -> bool:
        own = [each for each in self._commands.values() if each.instance == instance]
        settled = [each for each in own if each.outcome is not Outcome.PENDING]
        for each in settled:
            self._commands[each.id] = replace(each, data=ERASED, reason="")
        return len(settled) == len(own)

    def drop_forgotten(self, instance: str) -> None:
        for key in self._forgotten(instance):
            del self._personal[key]

    def _forgotten(self, instance: str) -> list[tuple[str, str]]:
        return [
            key for key, (_, is_forgotten) in self._personal.items() if is_forgotten and key[1] == instance
        ]

    def instances(self) -> dict[str, tuple[str, bytes]]:
        return dict(self._instances)
