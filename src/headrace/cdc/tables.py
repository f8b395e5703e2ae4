"""How rows of a table are written: made once for each description of it, used for every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headrace.cdc.catalog import Catalog, key_columns
from headrace.cdc.messages import GONE, Relation, RelationColumn, Row, Value
from headrace.cdc.selection import Selection
from headrace.cdc.settings import EventSettings
from headrace.cdc.values.converters import converter_of
from headrace.cdc.values.scalars import NULL, Converter, text
from headrace.errors import ProtocolError

Notify = Callable[[str], None]
"""Takes a sentence that an operator should see."""

_FIXED_SIZE: Final = frozenset(
    {
        *("bool", "int2", "int4", "int8", "oid", "float4", "float8", "money", "uuid", "macaddr", "macaddr8"),
        *("date", "time", "timetz", "timestamp", "timestamptz", "interval", "name", "char"),
        *("point", "lseg", "box", "line", "circle", "pg_lsn", "xid", "xid8", "cid", "tid"),
    }
)
"""Types whose values are never moved out of their row (TOAST)."""


class Table:
    """Writes rows and keys of one table as JSON."""

    def __init__(
        self,
        relation: Relation,
        *,
        settings: EventSettings,
        catalog: Catalog,
        selection: Selection,
        notify: Notify,
    ) -> None:
        self.relation = relation
        self.collection = f"{relation.schema}.{relation.name}"
        self.topic = settings.topic_of(relation.schema, relation.name)
        self._notify = notify
        self._width = len(relation.columns)
        key = key_columns(relation, catalog)
        self.key_columns = tuple(column.name for column in key)
        self._key_places = tuple(relation.columns.index(column) for column in key)
        self._prepare(settings, catalog, selection)

    def _prepare(self, settings: EventSettings, catalog: Catalog, selection: Selection) -> None:
        relation, names = self.relation, (self.relation.schema, self.relation.name)
        converters: list[Converter] = []
        needed = []
        for place, column in enumerate(relation.columns):
            cover = selection.cover_of(*names, column.name, is_key=place in self._key_places)
            is_taken = selection.takes_column(*names, column.name)
            converter = converter_of(column.type_oid, column.modifier, catalog, settings.values)
            converters.append(cover.converter if cover else converter)
            if is_taken and (cover is None or cover.needs_value):
                needed.append(place)
        self._kept_places = tuple(
            place
            for place, column in enumerate(relation.columns)
            if selection.takes_column(*names, column.name)
        )
        self._all_converters = tuple(converters)
        self._converters = tuple(converters[place] for place in self._kept_places)
        self._template = _template(self.columns)
        self._key_converters = tuple(converters[place] for place in self._key_places)
        self._key_template = _template([relation.columns[place] for place in self._key_places])
        self.needed_places = frozenset(needed) | frozenset(self._key_places)
        self.toastable_places = tuple(
            place for place in sorted(self.needed_places) if _can_be_toasted(relation.columns[place], catalog)
        )

    @property
    def columns(self) -> tuple[RelationColumn, ...]:
        """Those that its rows are written with."""
        return tuple(self.relation.columns[place] for place in self._kept_places)

    @property
    def has_key(self) -> bool:
        """Whether its rows are known by something."""
        return bool(self._key_places)

    def key(self, row: Row) -> bytes | None:
        """The key of a row, whole or only its identity; None in a table without one."""
        if not self._key_places:
            return None
        values = [row[place] for place in self._key_places]
        return self._json(self._key_template, self._key_converters, values, self._key_places)

    def key_values(self, row: Row) -> dict[str, Value]:
        """The same as texts by name."""
        return {self.relation.columns[place].name: row[place] for place in self._key_places}

    def toastable_values(self, row: Row) -> dict[str, bytes]:
        """Those that an update may leave out, as texts by name."""
        columns = self.relation.columns
        return {
            columns[place].name: value
            for place in self.toastable_places
            if isinstance(value := row[place], bytes)
        }

    def row(self, row: Row) -> bytes:
        """A row. Columns of which nothing can be known any more are left out."""
        if len(row) != self._width:
            raise ProtocolError(
                f"a row of {self.collection} has {len(row)} columns where {self._width} were described"
            )
        values = row if len(self._kept_places) == self._width else [row[place] for place in self._kept_places]
        return self._json(self._template, self._converters, values, self._kept_places)

    def _json(
        self,
        template: bytes,
        converters: tuple[Converter, ...],
        values: Sequence[Value],
        places: Sequence[int],
    ) -> bytes:
        try:
            return template % tuple(
                [
                    NULL if value is None else convert(value)  # type: ignore[arg-type]
                    for convert, value in zip(converters, values, strict=True)
                ]
            )
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            # A value that is not what its type promises, or that is gone: which one, is looked for only now.
            return self._json_with_care(values, places)

    def _json_with_care(self, values: Sequence[Value], places: Sequence[int]) -> bytes:
        fields = [
            text(self.relation.columns[place].name.encode()) + b":" + self._written(place, value)
            for place, value in zip(places, values, strict=True)
            if value is not GONE
        ]
        return b"{%b}" % b",".join(fields)

    def _written(self, place: int, value: Value) -> bytes:
        if value is None:
            return NULL
        try:
            return self._all_converters[place](value)  # type: ignore[arg-type]
        except (ValueError, LookupError, ArithmeticError):
            assert isinstance(value, bytes), "what is unchanged was looked up before"
            # The value itself is left out: it is nobody's business who reads logs.
            name = f"{self.collection}.{self.relation.columns[place].name}"
            self._notify(
                f"a value of {name} is written as its text, as it is not what its type promises: the "
                "capture's session has to have DateStyle ISO, IntervalStyle postgres and TimeZone UTC"
            )
            return text(value)


def _template(columns: Sequence[RelationColumn]) -> bytes:
    names = [text(column.name.encode()).replace(b"%", b"%%") for column in columns]
    return b"{%b}" % b",".join([name + b":%b" for name in names])


def _can_be_toasted(column: RelationColumn, catalog: Catalog) -> bool:
    pg_type = catalog.type_of(column.type_oid)
    while pg_type is not None and pg_type.base_oid:
        pg_type = catalog.type_of(pg_type.base_oid)
    return pg_type is None or pg_type.name not in _FIXED_SIZE
