"""The beginning of a capture: publication, slot, initial snapshot.

What a crash interrupts, the next start goes on with:

    nothing → `making the slot` → slot made → `streaming`, tables to read → … → `streaming`, no tables

A slot that is found while the state says `making the slot` was made by us and never read from: it is dropped
and made anew. One that is found before we have said so is another's, and is left alone. So is a publication:
that we make it is in the state before it is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from headrace.cdc.cancelling import cancelled_when
from headrace.cdc.connection import Connection, connect, explained
from headrace.cdc.database_catalog import DatabaseCatalog, PublishedTable
from headrace.cdc.envelope import SnapshotPoint
from headrace.cdc.events import is_captured, selection_of
from headrace.cdc.marking import marked
from headrace.cdc.progress import Progress
from headrace.cdc.publisher import Publisher
from headrace.cdc.record import Record
from headrace.cdc.slot import check_whose, not_made_by
from headrace.cdc.slots import (
    NewSlot,
    check_publication,
    check_settings,
    create_slot,
    drop_slot,
    ensure_own_publication,
    has_publication,
    not_published,
    read_slot,
    system_identifier,
)
from headrace.cdc.snapshot import ChunkRows, ExportedSnapshot, lock_tables
from headrace.cdc.state import CaptureState, Phase, TableSnapshot
from headrace.cdc.writer import ChangeWriter
from headrace.config import CaptureConfig
from headrace.errors import CaptureFailed, ConfigError, SlotLost
from headrace.failpoints import hit

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a beginning works with; all belong to the capture's thread."""

    config: CaptureConfig
    control: Connection
    catalog: DatabaseCatalog
    publisher: Publisher
    writer: ChangeWriter
    progress: Progress
    is_ending: Callable[[], bool]
    """Whether somebody wants the capture to stop or to pause."""
    has_temporary_slot: bool = False
    """Whether the slot is needed for a snapshot only, and for no longer than that takes to be taken up."""


def begin(parts: Parts) -> CaptureState:
    """Bring a capture to where it streams, and return its state; or raise what keeps it from going on."""
    config, state = parts.config, parts.publisher.state
    with explained(config.dsn, "looking at the database"):
        check_settings(parts.control)
        system = system_identifier(parts.control)
    wanted = _wanted(parts)
    if state is None:
        with explained(config.dsn, "looking for the slot"):
            found = read_slot(parts.control, config.slot)
        if found is not None:
            raise not_made_by(config.name, config.slot)
        state = CaptureState(slot=config.slot, system=system, phase=Phase.MAKING_SLOT)
        parts.publisher.commit(state)
    if state.system != system:
        raise SlotLost(
            f"capture {config.name} was made for another database server (system {state.system}, this one is "
            f"{system}): name that one, or `headrace capture start {config.name} --new-snapshot` begins anew"
        )
    if state.slot != config.slot:
        raise ConfigError(
            f"capture {config.name} has published what it read from the replication slot {state.slot}, and "
            f"now names {config.slot}: another one of the name publishes to {config.prefix}.*, too, or its "
            "settings have changed. Name the first with --slot, or choose another name and --prefix"
        )
    state = _with_publication(parts, state, wanted)
    if state.phase is Phase.MAKING_SLOT:
        return _first_time(parts, state)
    return state


def _first_time(parts: Parts, state: CaptureState) -> CaptureState:
    config = parts.config
    hit("capture.slot")
    with explained(config.dsn, "dropping the slot of a start that was interrupted"):
        found = read_slot(parts.control, config.slot)
        if found is not None:
            check_whose(config.name, found)
            drop_slot(parts.control, config.slot)
    with ExitStack() as stack:
        with connect(config.dsn, replication=True) as maker:
            waiting = cancelled_when(parts.is_ending, maker, tell=partial(_tell_of_waiting, config.name))
            with explained(config.dsn, "making the slot"), waiting:
                slot = create_slot(maker, config.slot, is_temporary=parts.has_temporary_slot)
            hit("capture.slot.made")
            state = replace(state, slot=slot.name, phase=Phase.STREAMING, lsn=slot.consistent_lsn)
            tables = [] if config.snapshot == "never" else _tables_to_read(parts)
            if not tables:
                parts.publisher.commit(state)
                return state
            snapshot = stack.enter_context(_exported(config, slot))
        # Before the state says that there is a slot: if this fails, it is made anew.
        with cancelled_when(parts.is_ending, *snapshot.connections):
            tables = _locked(parts, snapshot, tables)
        state = replace(state, tables=tuple(map(_to_read, tables)))
        parts.publisher.commit(state)
        with cancelled_when(parts.is_ending, *snapshot.connections):
            return _published(parts, state, slot, tables, snapshot)


def _tell_of_waiting(name: str) -> None:
    _logger.warning(
        "capture %s: the database makes the slot when all transactions have ended that are open now; "
        "pg_stat_activity has them, by xact_start",
        name,
    )


def _exported(config: CaptureConfig, slot: NewSlot) -> ExportedSnapshot:
    return ExportedSnapshot(
        config.dsn, slot.snapshot, reader_count=config.reader_count, chunk_rows_max=config.chunk_rows_max
    )


def _locked(parts: Parts, snapshot: ExportedSnapshot, tables: list[PublishedTable]) -> list[PublishedTable]:
    """The tables as they are now that nobody can alter them any more."""
    snapshot.lock(tables)
    with explained(parts.config.dsn, "locking the tables of the snapshot"), parts.control.transaction():
        # To look at a table takes a lock as well, and must not wait for those who wait for the snapshot.
        lock_tables(parts.control, tables, waits=False)
        looked_at = [parts.catalog.again(table) for table in tables]
    return [table for table in looked_at if table is not None]


def _to_read(table: PublishedTable) -> TableSnapshot:
    return TableSnapshot(schema=table.relation.schema, table=table.relation.name, estimate=table.estimate)


def _published(
    parts: Parts, state: CaptureState, slot: NewSlot, tables: list[PublishedTable], snapshot: ExportedSnapshot
) -> CaptureState:
    point = SnapshotPoint(marker="true", at_ns=time.time_ns(), lsn=slot.consistent_lsn)
    parts.progress.snapshot_begun(state)
    for chunk in snapshot.chunks(tables):
        if parts.is_ending():
            return state
        parts.writer.know(chunk.table.relation)
        is_last = len(state.tables) == 1 and chunk.upto is None
        is_first = state.tables[0].after is None
        parts.publisher.send(_records(parts.writer, chunk, point, is_first=is_first, is_last=is_last))
        row_count = parts.publisher.sent_count
        hit("capture.snapshot")
        state = state.with_chunk(chunk.upto, row_count).advanced(state.lsn, row_count)
        parts.publisher.commit(state)
        parts.progress.chunk_published(state, chunk.table.name, row_count)
    hit("capture.handover")
    return state


def _records(
    writer: ChangeWriter, chunk: ChunkRows, point: SnapshotPoint, *, is_first: bool, is_last: bool
) -> Iterator[Record]:
    now_ns, oid = time.time_ns(), chunk.table.relation.oid
    marks = marked(chunk.rows, point, starts_table=is_first, ends_table=chunk.upto is None, ends_all=is_last)
    for row, where in marks:
        record = writer.snapshot_row(oid, list(row), where, now_ns)
        if record is not None:
            yield record


def _tables_to_read(parts: Parts) -> list[PublishedTable]:
    published = parts.catalog.published(parts.config.publication)
    return [each for each in published if is_captured(parts.config, each.relation.schema, each.relation.name)]


def left_out(parts: Parts) -> list[str]:
    """Tables that are to be captured and are not published, such as those that were created since."""
    config = parts.config
    with explained(config.dsn, f"looking at the publication {config.publication}"):
        missing = not_published(parts.control, config.publication, _matching(parts))
    return [".".join(names) for names in missing]


def _matching(parts: Parts) -> list[tuple[str, str]]:
    config, selection = parts.config, selection_of(parts.config)
    return [
        names
        for names in parts.catalog.all_tables()
        if selection.takes_table(*names) or ".".join(names) == config.outbox_table
    ]


def _wanted(parts: Parts) -> list[tuple[str, str]]:
    config, wanted = parts.config, _matching(parts)
    if not wanted:
        patterns = ", ".join(config.include_tables) or "any table"
        raise ConfigError(
            f"the database of capture {config.name} has no table that it could capture (asked for "
            f"{patterns}): create one first, or name others with --table"
        )
    return wanted


def _with_publication(parts: Parts, state: CaptureState, wanted: list[tuple[str, str]]) -> CaptureState:
    """Have the publication, and let the state say whose it is."""
    config = parts.config
    with explained(config.dsn, f"looking for the publication {config.publication}"):
        is_there = has_publication(parts.control, config.publication)
    if is_there and not state.owns_publication:
        _check_publication(parts, wanted)
        return state
    if not state.owns_publication:
        state = replace(state, owns_publication=True)
        parts.publisher.commit(state)
    with explained(config.dsn, f"making the publication {config.publication}"):
        added = ensure_own_publication(parts.control, config.publication, wanted)
    for schema, table in added:
        _logger.warning(
            "%s.%s is captured from now on; rows that it has already are published by "
            "`headrace capture snapshot %s %s.%s`",
            schema,
            table,
            config.name,
            schema,
            table,
        )
    _check_publication(parts, wanted)
    return state


def _check_publication(parts: Parts, wanted: list[tuple[str, str]]) -> None:
    with explained(parts.config.dsn, f"looking at the publication {parts.config.publication}"):
        check_publication(parts.control, parts.config.publication, wanted)


def find_table(catalog: DatabaseCatalog, publication: str, asked: TableSnapshot) -> PublishedTable:
    """The table of a snapshot that goes on while changes are streamed."""
    found = catalog.published(publication, (asked.schema, asked.table))
    if not found:
        raise CaptureFailed(
            f"{asked.name} is not in the publication {publication} any more, and its snapshot is not "
            f"complete: add it (ALTER PUBLICATION {publication} ADD TABLE {asked.name})"
        )
    [table] = found
    if not table.key:
        raise CaptureFailed(
            f"{asked.name} has no primary key, so rows that are read beside the stream can't be told from "
            "those that changed meanwhile: give it a key, or exclude it, and begin anew (--new-snapshot)"
        )
    return table
