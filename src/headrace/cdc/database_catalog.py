"""Asks the database what its stream does not say: types, primary keys, and what tables look like now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace.cdc.catalog import BUILT_IN_TYPES, PgType, key_columns
from headrace.cdc.connection import Connection, explained
from headrace.cdc.messages import Relation, RelationColumn

_TYPE: Final = """
    SELECT t.oid, t.typname, n.nspname, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,
           t.typbasetype, t.typtypmod, t.typdelim
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = %s
"""
_PRIMARY_KEY: Final = """
    SELECT a.attname FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid
    WHERE i.indrelid = %s AND i.indisprimary
      AND array_position(i.indkey::smallint[], a.attnum) < i.indnkeyatts
    ORDER BY array_position(i.indkey::smallint[], a.attnum)
"""
"""Columns that an index only includes lie behind those of its key; positions begin with 0."""
_IS_THERE: Final = "SELECT 1 FROM pg_class WHERE oid = %s"
_TABLES: Final = """
    SELECT c.oid, n.nspname, c.relname, c.relreplident::text, c.relkind = 'p',
           (CASE WHEN c.reltuples < 0 THEN size.rows_bytes / 100 ELSE c.reltuples END)::bigint,
           size.all_bytes::bigint
    FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(pg_relation_size(part.relid)), pg_relation_size(c.oid)) AS rows_bytes,
               coalesce(sum(pg_table_size(part.relid)), pg_table_size(c.oid)) AS all_bytes
        FROM pg_partition_tree(c.oid) part) size
    WHERE p.pubname = %(publication)s
      AND (%(schema)s::text IS NULL OR (n.nspname = %(schema)s AND c.relname = %(table)s))
    ORDER BY n.nspname, c.relname
"""
"""Of a table that was never analysed, rows are guessed from its size, at 100 bytes each outside of TOAST."""
_ALL_TABLES: Final = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'
    ORDER BY n.nspname, c.relname
"""
_ALL_COLUMNS: Final = """
    SELECT n.nspname, c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
_COLUMNS: Final = """
    SELECT a.attname, a.atttypid, a.atttypmod,
           CASE %(identity)s::text WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
               SELECT FROM pg_index i
               WHERE i.indrelid = a.attrelid
                 AND array_position(i.indkey::smallint[], a.attnum) < i.indnkeyatts
                 AND CASE %(identity)s::text WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) END
    FROM pg_attribute a
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    ORDER BY a.attnum
"""
_ONE: Final = "SELECT 1::money::text"
"""A one, and as many zeros as there are digits behind the point."""
_LISTED: Final = """
    SELECT attnames, rowfilter FROM pg_publication_tables
    WHERE pubname = %s AND schemaname = %s AND tablename = %s
"""
_LISTS_SINCE: Final = 150000
"""Publications of parts of tables came with PostgreSQL 15."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of a publication, as it is now."""

    publication: str
    relation: Relation
    """As the stream would describe it."""
    key: tuple[str, ...]
    """What its rows are known by, in the order of the primary key's index, if it is that: in any other order
    each chunk would have to sort the rest of the table. Nothing, where rows are known by nothing."""
    is_partitioned: bool
    row_filter: str | None
    """Which of its rows are published, as an SQL condition; None: all."""
    estimate: int
    """How many rows it has, by the database's own guess."""
    size_bytes: int

    @property
    def name(self) -> str:
        """Schema and table."""
        return f"{self.relation.schema}.{self.relation.name}"


class DatabaseCatalog:
    """What the database says now; types and keys are asked for once. Belongs to one thread."""

    def __init__(self, connection: Connection, dsn: str) -> None:
        self._connection = connection
        self._dsn = dsn
        self._types = dict(BUILT_IN_TYPES)

    def type_of(self, oid: int) -> PgType | None:
        """The type; None where it is gone."""
        if oid not in self._types:
            rows = self._ask("the types of columns", _TYPE, (oid,))
            if not rows:
                return None
            number, name, schema, element, base, modifier, delimiter = rows[0]
            self._types[oid] = PgType(
                oid=number,
                name=name,
                schema=schema,
                element_oid=element,
                base_oid=base,
                base_modifier=modifier,
                delimiter=delimiter,
            )
        return self._types[oid]

    def primary_key_of(self, relation: Relation) -> tuple[str, ...] | None:
        """The columns of the table's primary key, in its order; None where the table is gone."""
        what = f"the key of {relation.schema}.{relation.name}"
        rows = self._ask(what, _PRIMARY_KEY, (relation.oid,))
        if not rows and not self._ask(what, _IS_THERE, (relation.oid,)):
            return None
        return tuple(row[0] for row in rows)

    def all_tables(self) -> list[tuple[str, str]]:
        """Schema and name of all tables that could be captured; partitions count as their table."""
        return [(schema, table) for schema, table in self._ask("the tables", _ALL_TABLES, None)]

    def all_columns(self) -> list[tuple[str, str, str]]:
        """Schema, table and name of all columns of tables."""
        return [(schema, table, name) for schema, table, name in self._ask("columns", _ALL_COLUMNS, None)]

    def money_fraction_digits(self) -> int:
        """How many digits money has behind the point here, by `lc_monetary`: none in Japan, say."""
        [(one,)] = self._ask("how money is written", _ONE, None)
        return sum(map(str.isdigit, one)) - 1

    def published(
        self, publication: str, only: tuple[str | None, str | None] = (None, None)
    ) -> list[PublishedTable]:
        """The tables of a publication, or one of them, by schema and name."""
        values = {"publication": publication, "schema": only[0], "table": only[1]}
        rows = self._ask("the tables of the publication", _TABLES, values)
        return [self._published(publication, row) for row in rows]

    def again(self, table: PublishedTable) -> PublishedTable | None:
        """The table as it is by now; None where there is none of its name in the publication any more."""
        found = self.published(table.publication, (table.relation.schema, table.relation.name))
        return found[0] if found else None

    def _published(self, publication: str, row: tuple[Any, ...]) -> PublishedTable:
        oid, schema, name, identity, is_partitioned, estimate, size_bytes = row
        listed, row_filter = self._listed(publication, schema, name)
        relation = Relation(
            oid=oid, schema=schema, name=name, identity=identity, columns=self._columns(oid, identity, listed)
        )
        return PublishedTable(
            publication=publication,
            relation=relation,
            key=self._key(relation),
            is_partitioned=is_partitioned,
            row_filter=row_filter,
            estimate=estimate,
            size_bytes=size_bytes,
        )

    def _key(self, relation: Relation) -> tuple[str, ...]:
        key = tuple(column.name for column in key_columns(relation, self))
        primary_key = (self.primary_key_of(relation) if len(key) > 1 else None) or ()
        return primary_key if set(primary_key) == set(key) else key

    def _columns(self, oid: int, identity: str, listed: list[str] | None) -> tuple[RelationColumn, ...]:
        rows = self._ask("the columns of a table", _COLUMNS, {"oid": oid, "identity": identity})
        return tuple(
            RelationColumn(name=name, type_oid=type_oid, modifier=modifier, is_identity=is_identity)
            for name, type_oid, modifier, is_identity in rows
            if listed is None or name in listed
        )

    def _listed(self, publication: str, schema: str, table: str) -> tuple[list[str] | None, str | None]:
        if self._connection.info.server_version < _LISTS_SINCE:
            return None, None
        rows = self._ask("the publication", _LISTED, (publication, schema, table))
        return (rows[0][0], rows[0][1]) if rows else (None, None)

    def _ask(self, what: str, query: str, values: Any) -> list[tuple[Any, ...]]:
        with explained(self._dsn, f"asking for {what}"):
            return self._connection.execute(query.encode(), values).fetchall()
