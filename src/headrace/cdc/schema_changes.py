"""What is told on the topic of schemas: that a table came up, or that it is another one from here on.

The envelope is that of Debezium's schema changes, with what the replication stream knows: there is no DDL
in it, but each column's type with its modifiers. The event lies before the first row that has the new
columns.
"""

from __future__ import annotations

from typing import Final

from headrace.cdc.catalog import Catalog
from headrace.cdc.envelope import as_json
from headrace.cdc.messages import RelationColumn
from headrace.cdc.rows import Moment
from headrace.cdc.settings import EventSettings
from headrace.cdc.tables import Table
from headrace.cdc.values.numbers import scale_of

_HEADER: Final = 4
_IDENTITIES: Final = {"d": "DEFAULT", "i": "INDEX", "f": "FULL", "n": "NOTHING"}


def schema_key(settings: EventSettings) -> bytes:
    """Schema changes of a database are in one partition, in their order."""
    return as_json({"databaseName": settings.database})


def schema_change(
    table: Table,
    *,
    is_new: bool,
    settings: EventSettings,
    catalog: Catalog,
    at: Moment,
) -> bytes:
    """The event of a table that is described for the first time, or anew."""
    relation = table.relation
    columns = [_column(column, position, catalog) for position, column in enumerate(table.columns, start=1)]
    described = {
        "primaryKeyColumnNames": list(table.key_columns),
        "replicaIdentity": _IDENTITIES.get(relation.identity, relation.identity),
        "columns": columns,
    }
    change = {
        "type": "CREATE" if is_new else "ALTER",
        "id": f'"{relation.schema}"."{relation.name}"',
        "table": described,
    }
    rest = {
        "ts_ms": at.now_ns // 1_000_000,
        "databaseName": settings.database,
        "schemaName": relation.schema,
        "ddl": None,
        "tableChanges": [change],
    }
    source = at.events.source(relation.schema, relation.name, at.lsn)
    return b"{%b,%b" % (source.encode(), as_json(rest)[1:])


def _column(column: RelationColumn, position: int, catalog: Catalog) -> dict[str, object]:
    pg_type = catalog.type_of(column.type_oid)
    name = "unknown" if pg_type is None else pg_type.name
    length, scale = _size(name, column.modifier)
    sizes = ",".join(str(each) for each in (length, scale) if each is not None)
    return {
        "name": column.name,
        "nativeType": column.type_oid,
        "typeName": name,
        "typeExpression": f"{name}({sizes})" if sizes else name,
        "length": length,
        "scale": scale,
        "position": position,
    }


def _size(type_name: str, modifier: int) -> tuple[int | None, int | None]:
    """What a type's name is followed by in parentheses."""
    if modifier < 0:
        return None, None
    name = type_name.removeprefix("_")
    if name == "numeric":
        return (modifier - _HEADER) >> 16, scale_of(modifier)
    if name in {"varchar", "bpchar"}:
        return modifier - _HEADER, None
    return (
        (modifier, None)
        if name in {"bit", "varbit", "time", "timetz", "timestamp", "timestamptz"}
        else (None, None)
    )
