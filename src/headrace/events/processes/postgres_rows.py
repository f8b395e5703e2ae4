"""The rows of a process in tables of PostgreSQL, named after it: `transfers_instances`, and so on."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from headrace.events.processes.rows import ERASED, DueTimer, Outcome, SentCommand, Told

CREATE: Final = """
CREATE TABLE {name}_instances (
    instance text PRIMARY KEY,
    type text NOT NULL,
    state bytea NOT NULL
);
CREATE TABLE {name}_commands (
    number bigint GENERATED ALWAYS AS IDENTITY,
    id uuid PRIMARY KEY,
    instance text NOT NULL,
    stream text NOT NULL,
    type text NOT NULL,
    data bytea NOT NULL,
    causation_id text NOT NULL,
    correlation_id text,
    outcome text NOT NULL DEFAULT 'pending' CHECK (outcome IN ('pending', 'done', 'refused', 'failed')),
    reason text NOT NULL DEFAULT '',
    attempt_count integer NOT NULL DEFAULT 0,
    sent_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON {name}_commands (number) WHERE outcome = 'pending';
CREATE TABLE {name}_timers (
    instance text NOT NULL,
    name text NOT NULL,
    due_at timestamptz NOT NULL,
    PRIMARY KEY (instance, name)
);
CREATE INDEX ON {name}_timers (due_at);
"""
ADDED: Final = {
    "{name}_personal": """
CREATE TABLE {name}_personal (
    subject text NOT NULL,
    instance text NOT NULL,
    texts text[] NOT NULL,
    is_forgotten boolean NOT NULL DEFAULT false,
    PRIMARY KEY (subject, instance)
);
""",
    "{name}_personal_by_instance": "CREATE INDEX {name}_personal_by_instance ON {name}_personal (instance)",
    "{name}_commands_instance_idx": "CREATE INDEX {name}_commands_instance_idx ON {name}_commands (instance)",
}
"""Processes have been there for longer than these."""
_COMMAND: Final = (
    "SELECT id, instance, stream, type, data, causation_id, correlation_id, outcome, reason, attempt_count "
    "FROM {name}_commands"
)


class Work(Protocol):
    """What statements are run by."""

    def execute(self, statement: str, values: Any = None) -> Any:
        """Run one; gives a cursor."""


class PostgresRows:
    """Rows as rows."""

    def __init__(self, work: Work, name: str) -> None:
        self._work = work
        self._name = name

    def state(self, instance: str) -> tuple[str, bytes] | None:
        row = self._run("SELECT type, state FROM {name}_instances WHERE instance = %s", instance).fetchone()
        return None if row is None else (row[0], bytes(row[1]))

    def keep_state(self, instance: str, state: tuple[str, bytes] | None) -> None:
        if state is None:
            self._run("DELETE FROM {name}_instances WHERE instance = %s", instance)
        else:
            self._run(
                "INSERT INTO {name}_instances (instance, type, state) VALUES (%s, %s, %s) "
                "ON CONFLICT (instance) DO UPDATE SET type = excluded.type, state = excluded.state",
                instance,
                *state,
            )

    def add_command(self, command: SentCommand) -> None:
        self._run(
            "INSERT INTO {name}_commands (id, instance, stream, type, data, causation_id, correlation_id) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO NOTHING",
            command.id,
            command.instance,
            command.stream,
            command.type,
            command.data,
            command.causation_id,
            command.correlation_id,
        )

    def pending(self, limit: int) -> list[SentCommand]:
        rows = self._run(_COMMAND + " WHERE outcome = 'pending' ORDER BY number LIMIT %s", limit)
        return [_command(row) for row in rows.fetchall()]

    def command(self, command_id: UUID) -> SentCommand:
        row = self._run(_COMMAND + " WHERE id = %s", command_id).fetchone()
        assert row is not None, f"command {command_id} was kept, and is gone"
        return _command(row)

    def note(self, command_id: UUID, outcome: Outcome, reason: str) -> None:
        self._run(
            "UPDATE {name}_commands SET outcome = %s, reason = %s, attempt_count = attempt_count + 1 "
            "WHERE id = %s",
            outcome.value,
            reason.replace("\0", "\\0"),
            command_id,
        )

    def failed(self) -> list[SentCommand]:
        rows = self._run(_COMMAND + " WHERE outcome = 'failed' ORDER BY number")
        return [_command(row) for row in rows.fetchall()]

    def set_timer(self, instance: str, name: str, due_at: datetime | None) -> None:
        if due_at is None:
            self._run("DELETE FROM {name}_timers WHERE instance = %s AND name = %s", instance, name)
        else:
            self._run(
                "INSERT INTO {name}_timers (instance, name, due_at) VALUES (%s, %s, %s) "
                "ON CONFLICT (instance, name) DO UPDATE SET due_at = excluded.due_at",
                instance,
                name,
                due_at,
            )

    def due_timers(self, now: datetime, limit: int) -> list[DueTimer]:
        rows = self._run(
            "SELECT instance, name, due_at FROM {name}_timers WHERE due_at <= %s "
            "ORDER BY due_at, instance, name LIMIT %s",
            now,
            limit,
        )
        return [DueTimer(instance=row[0], name=row[1], due_at=row[2]) for row in rows.fetchall()]

    def told(self, instance: str) -> list[Told]:
        rows = self._run(
            "SELECT subject, texts, is_forgotten FROM {name}_personal WHERE instance = %s", instance
        )
        return [Told(subject=row[0], texts=frozenset(row[1]), is_forgotten=row[2]) for row in rows.fetchall()]

    def keep_told(self, instance: str, told: Told) -> None:
        self._run(
            "INSERT INTO {name}_personal (subject, instance, texts, is_forgotten) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (subject, instance) DO UPDATE "
            "SET texts = excluded.texts, is_forgotten = excluded.is_forgotten",
            told.subject,
            instance,
            sorted(told.texts),
            told.is_forgotten,
        )

    def drop_told(self, instance: str, subject: str) -> None:
        self._run("DELETE FROM {name}_personal WHERE subject = %s AND instance = %s", subject, instance)

    def mark_forgotten(self, subject: str) -> list[str]:
        rows = self._run(
            "UPDATE {name}_personal SET is_forgotten = true WHERE subject = %s RETURNING instance", subject
        )
        return sorted(row[0] for row in rows.fetchall())

    def forgotten(self) -> list[tuple[str, str]]:
        rows = self._run(
            "SELECT instance, subject FROM {name}_personal WHERE is_forgotten AND texts <> '{{}}'"
        )
        return sorted((row[0], row[1]) for row in rows.fetchall())

    def erase_settled(self, instance: str) -> None:
        self._run(
            "UPDATE {name}_commands SET data = %s, reason = '' WHERE instance = %s AND outcome <> 'pending'",
            ERASED,
            instance,
        )

    def outcomes(self, instance: str) -> set[Outcome]:
        rows = self._run("SELECT DISTINCT outcome FROM {name}_commands WHERE instance = %s", instance)
        return {Outcome(row[0]) for row in rows.fetchall()}

    def instances(self) -> dict[str, tuple[str, bytes]]:
        rows = self._run("SELECT instance, type, state FROM {name}_instances ORDER BY instance")
        return {row[0]: (row[1], bytes(row[2])) for row in rows.fetchall()}

    def _run(self, statement: str, *values: object) -> Any:
        return self._work.execute(statement.format(name=self._name), values)


def _command(row: tuple[Any, ...]) -> SentCommand:
    return SentCommand(
        id=row[0],
        instance=row[1],
        stream=row[2],
        type=row[3],
        data=bytes(row[4]),
        causation_id=row[5],
        correlation_id=row[6],
        outcome=Outcome(row[7]),
        reason=row[8],
        attempt_count=row[9],
    )
