"""Replication slots and publications in the database: made, looked at, dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from headrace.cdc.connection import Connection
from headrace.cdc.positions import parse_lsn
from headrace.cdc.slot import Slot, WalStatus
from headrace.config import MIB
from headrace.errors import ConfigError

_LOOK: Final = """
    SELECT s.slot_name, s.plugin, s.database, current_database(), s.active_pid, s.wal_status,
           s.restart_lsn::text, s.confirmed_flush_lsn::text,
           (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text,
           (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size')
    FROM pg_replication_slots s WHERE s.slot_name = %s
"""
_PUBLICATION: Final = """
    SELECT pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s
"""
_OPERATIONS: Final = ("insert", "update", "delete", "truncate")
_PARTITIONED: Final = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'p'
"""
_PUBLISHED: Final = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
_CREATE_PUBLICATION: Final = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSlot:
    """A slot that was just made. Its snapshot lives as long as nothing else is run on its connection."""

    name: str
    consistent_lsn: int
    snapshot: str


def read_slot(connection: Connection, slot_name: str) -> Slot | None:
    """What the database says of a slot; None where there is none."""
    row = connection.execute(_LOOK, (slot_name,)).fetchone()
    if row is None:
        return None
    name, plugin, database, current, pid, status, restart, confirmed, end, keep_mib = row
    return Slot(
        name=name,
        plugin=plugin,
        database=database,
        current_database=current,
        active_pid=pid,
        wal_status=WalStatus(status or "lost"),
        restart_lsn=None if restart is None else parse_lsn(restart),
        confirmed_lsn=None if confirmed is None else parse_lsn(confirmed),
        end_lsn=parse_lsn(end),
        keep_bytes_max=None if keep_mib < 0 else keep_mib * MIB,
    )


def create_slot(replication: Connection, slot_name: str, *, is_temporary: bool = False) -> NewSlot:
    """Make a slot, and export the snapshot of the moment from which it has all changes.

    A temporary one goes with the connection.
    """
    statement = sql.SQL("CREATE_REPLICATION_SLOT {}{} LOGICAL pgoutput (SNAPSHOT 'export')").format(
        sql.Identifier(slot_name), sql.SQL(" TEMPORARY" if is_temporary else "")
    )
    row = replication.execute(statement).fetchone()
    assert row is not None
    return NewSlot(name=row[0], consistent_lsn=parse_lsn(row[1]), snapshot=row[2])


def drop_slot(connection: Connection, slot_name: str) -> bool:
    """Drop a slot, and say whether there was one. One of another plugin or database is none of ours."""
    row = connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE slot_name = %s AND plugin = 'pgoutput' AND database = current_database()",
        (slot_name,),
    ).fetchone()
    return row is not None


def system_identifier(connection: Connection) -> str:
    """Tells this database server from all others, its copies excepted."""
    row = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    assert row is not None
    return str(row[0])


def is_standby(connection: Connection) -> bool:
    """Whether the server follows another one, and takes no writes."""
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    return row is not None and bool(row[0])


def check_settings(connection: Connection) -> None:
    """Refuse a server that can't be captured from, and say which setting it needs."""
    row = connection.execute("SHOW wal_level").fetchone()
    if row is not None and row[0] != "logical":
        raise ConfigError(
            f"the database has wal_level={row[0]}, which keeps too little of what changes: set "
            "wal_level=logical (ALTER SYSTEM SET wal_level = 'logical') and restart it"
        )


def has_publication(connection: Connection, name: str) -> bool:
    """Whether there is a publication of the name."""
    row = connection.execute("SELECT FROM pg_publication WHERE pubname = %s", (name,)).fetchone()
    return row is not None


def ensure_own_publication(
    connection: Connection, name: str, tables: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Have a publication of these tables, and return those that were added to one that was there.

    One that somebody else has made is not for this: whoever made it decides what may be captured.
    """
    if not has_publication(connection, name):
        _alter(connection, _CREATE_PUBLICATION, name, tables)
        return []
    missing = not_published(connection, name, tables)
    if missing:
        _alter(connection, "ALTER PUBLICATION {} ADD TABLE {}", name, missing)
    return missing


def check_publication(connection: Connection, name: str, tables: Sequence[tuple[str, str]]) -> None:
    """Refuse a publication by which changes of these tables would be missing, or come by other names."""
    row = connection.execute(_PUBLICATION, (name,)).fetchone()
    assert row is not None
    is_by_root, *publishes = row
    silent = [operation for operation, is_on in zip(_OPERATIONS, publishes, strict=True) if not is_on]
    if silent:
        raise ConfigError(
            f"the publication {name} leaves out {', '.join(silent)}, so such changes would be missing: ALTER "
            f"PUBLICATION {name} SET (publish = '{', '.join(_OPERATIONS)}'), or have another (--publication)"
        )
    partitioned = _named(set(connection.execute(_PARTITIONED).fetchall()) & set(tables))
    if partitioned and not is_by_root:
        raise ConfigError(
            f"the publication {name} has changes of partitions by their own names, and {partitioned} is "
            f"partitioned: ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"
        )
    missing = _named(not_published(connection, name, tables))
    if missing:
        raise ConfigError(
            f"the publication {name} lacks {missing}, so its changes would be missing: ALTER PUBLICATION "
            f"{name} ADD TABLE {missing}, or say what is captured with --table and --exclude-table"
        )


def not_published(
    connection: Connection, name: str, tables: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Those of these tables that are not in a publication."""
    listed = set(connection.execute(_PUBLISHED, (name,)).fetchall())
    return [each for each in tables if each not in listed]


def drop_publication(connection: Connection, name: str) -> None:
    """Drop a publication, if it is there."""
    connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def _alter(connection: Connection, statement: str, name: str, tables: Sequence[tuple[str, str]]) -> None:
    named = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
    connection.execute(sql.SQL(statement).format(sql.Identifier(name), named))


def _named(tables: Iterable[tuple[str, ...]]) -> str:
    return ", ".join(sorted(".".join(each) for each in tables))
