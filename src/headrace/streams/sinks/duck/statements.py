"""The statements by which staged rows get into a table of DuckDB. No I/O.

Rows are deleted by key and inserted: that takes two thirds of the time of a merge, or less, and with an index
on the key either takes longer. Where the table has columns that the pipeline does not return, rows are
merged, so that these keep their values. All names are quoted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.streams.sinks.duck.columns import quoted
from headrace.streams.sinks.records import DELETE_COLUMN

# A directory above that is called `name=value` is not to give the rows a column.
_STAGED: Final = "read_parquet($files, hive_partitioning = false)"


def create_table(table: str, columns: Mapping[str, str]) -> str:
    """Make the table. It has no index: one would make each batch slower, and rows are joined without."""
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
    return f"CREATE TABLE {quoted(table)} ({listed})"


def upsert(
    table: str, columns: Sequence[str], key: Sequence[str], *, deletes: bool, has_others: bool
) -> list[str]:
    """Let the rows of files, a list of which is the parameter, take the place of those with the same key.

    `has_others` if the table has more columns than these.
    """
    if has_others:
        return [_merge(table, columns, key, deletes=deletes)]
    return [_delete(table, key), _insert(table, columns, deletes=deletes)]


def _merge(table: str, columns: Sequence[str], key: Sequence[str], *, deletes: bool) -> str:
    same = " AND ".join(f"kept.{quoted(name)} = staged.{quoted(name)}" for name in key)
    names = ", ".join(map(quoted, columns))
    values = ", ".join(f"staged.{quoted(name)}" for name in columns)
    others = [name for name in columns if name not in key]
    changes = ", ".join(f"{quoted(name)} = staged.{quoted(name)}" for name in others)
    deleted = f"staged.{quoted(DELETE_COLUMN)}"
    clauses = [f"WHEN MATCHED AND {deleted} THEN DELETE"] if deletes else []
    clauses.append(f"WHEN MATCHED THEN UPDATE SET {changes}" if others else "WHEN MATCHED THEN DO NOTHING")
    unless = f" AND NOT {deleted}" if deletes else ""
    clauses.append(f"WHEN NOT MATCHED{unless} THEN INSERT ({names}) VALUES ({values})")  # noqa: S608 - quoted
    head = f"MERGE INTO {quoted(table)} AS kept USING {_STAGED} AS staged ON ({same})"
    return " ".join([head, *clauses])


def _delete(table: str, key: Sequence[str]) -> str:
    same = " AND ".join(f"kept.{quoted(name)} = staged.{quoted(name)}" for name in key)
    return f"DELETE FROM {quoted(table)} AS kept USING {_STAGED} AS staged WHERE {same}"  # noqa: S608 - quoted


def _insert(table: str, columns: Sequence[str], *, deletes: bool) -> str:
    names = ", ".join(map(quoted, columns))
    where = f" WHERE NOT {quoted(DELETE_COLUMN)}" if deletes else ""
    return f"INSERT INTO {quoted(table)} ({names}) SELECT {names} FROM {_STAGED}{where}"  # noqa: S608 - quoted
