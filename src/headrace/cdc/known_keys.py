"""Which primary keys tables have had, by their numbers: for rows that are older than what the database says.

Where the identity of a table is its primary key, the stream itself says which columns that are. Where it is
full, or another index, the database is asked for the primary key, and says what it is now; the rows at hand
may be from before a column of it was renamed, or from before the table was dropped. So the keys by which
tables were known are kept with the capture's state, and a row has the last of them that its columns have. Of
a table that nobody knew before, it can't be told: then the capture stops, since rows without their keys would
never be found again on the topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.cdc.catalog import Catalog, PgType
from headrace.cdc.messages import Relation
from headrace.errors import CaptureFailed

KEYS_KEPT: Final = 4
"""Of each table: rows that are older than that many changes of its key are not to be expected."""

Keys = Mapping[int, Sequence[Sequence[str]]]
"""By the table's number, the last one at the end. An empty key is that of a table that has none."""


class KnownKeys:
    """A catalog whose primary keys are those of the rows at hand. Belongs to one thread."""

    def __init__(self, catalog: Catalog, before: Keys | None = None) -> None:
        """`before` are the keys that were kept."""
        self._catalog = catalog
        self.kept: dict[int, tuple[tuple[str, ...], ...]] = {
            oid: tuple(tuple(key) for key in keys) for oid, keys in (before or {}).items()
        }
        """What is to be kept."""

    def learn(self, relation: Relation) -> None:
        """A table is described as the database has it now: so it can be told what its rows are known by."""
        if relation.identity != "d":
            now = self._catalog.primary_key_of(relation) or ()
            self._add(relation.oid, now if _has(relation, now) else ())

    def primary_key_of(self, relation: Relation) -> tuple[str, ...]:
        """The primary key of rows that are described like this; none where their table had none."""
        now = self._catalog.primary_key_of(relation)
        if now is not None and _has(relation, now):
            self._add(relation.oid, now)
            return now
        known = self.kept.get(relation.oid, ())
        before = next((key for key in reversed(known) if key and _has(relation, key)), None)
        if before is not None or () in known or now is None:
            return before or ()
        raise CaptureFailed(
            f"rows of {relation.schema}.{relation.name} came whose columns are "
            f"{', '.join(column.name for column in relation.columns)}, while the table's primary key is "
            f"{', '.join(now)} by now: what they are known by can't be told, as no capture saw the table "
            "before its key changed. `headrace capture start NAME --new-snapshot` begins anew, after them"
        )

    def type_of(self, oid: int) -> PgType | None:
        """What the catalog knows."""
        return self._catalog.type_of(oid)

    def _add(self, oid: int, key: tuple[str, ...]) -> None:
        known = self.kept.get(oid, ())
        if not known or known[-1] != key:
            self.kept[oid] = (*(each for each in known if each != key), key)[-KEYS_KEPT:]


def _has(relation: Relation, key: Sequence[str]) -> bool:
    return {column.name for column in relation.columns}.issuperset(key)
