"""What a capture has to know of a database beyond its replication stream: types, and primary keys.

The stream names the types of columns by number, and tells of a table's identity, which need not be its
primary key: where the identity is full, every column is part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from headrace.cdc.messages import Relation, RelationColumn

NO_MODIFIER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PgType:
    """A row of `pg_type`, as far as it matters here."""

    oid: int
    name: str
    schema: str = "pg_catalog"
    element_oid: int = 0
    """`typelem` of a true array (`typcategory` A); 0 for everything else."""
    base_oid: int = 0
    """`typbasetype` of a domain; 0 for everything else."""
    base_modifier: int = NO_MODIFIER
    """`typtypmod` of a domain, such as the scale of the numeric that it stands for."""
    delimiter: str = ","
    """`typdelim`: what stands between the elements of an array of this type."""


class Catalog(Protocol):
    """Asked once for each type and table that comes up, and again after a table has changed."""

    def type_of(self, oid: int) -> PgType | None:
        """The type, or None where it is gone or never was: its values are then texts."""
        ...

    def primary_key_of(self, relation: Relation) -> tuple[str, ...] | None:
        """The columns of the table's primary key; none where it has none; None where the table is gone."""
        ...


class KnownCatalog:
    """What was read before, with the built-in types. Adding to it is not safe across threads."""

    def __init__(
        self,
        types: Iterable[PgType] = (),
        primary_keys: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
    ) -> None:
        self._types = BUILT_IN_TYPES | {each.oid: each for each in types}
        self._primary_keys = dict(primary_keys or {})

    def add_type(self, pg_type: PgType) -> None:
        """Know one more, or know it anew."""
        self._types[pg_type.oid] = pg_type

    def set_primary_key(self, schema: str, table: str, columns: tuple[str, ...]) -> None:
        """Know a table's key."""
        self._primary_keys[schema, table] = columns

    def type_of(self, oid: int) -> PgType | None:
        """The type, or None where nothing is known of it."""
        return self._types.get(oid)

    def primary_key_of(self, relation: Relation) -> tuple[str, ...]:
        """The columns of the table's primary key; none where nothing is known of it."""
        return self._primary_keys.get((relation.schema, relation.name), ())


def key_columns(relation: Relation, catalog: Catalog) -> tuple[RelationColumn, ...]:
    """What a table's rows are known by, in the order of its columns: none, if they are known by nothing.

    Where the identity is the primary key, the stream says so itself, and it says what held when the row was
    written; the catalog says what holds now. Where it is another index, all that is logged of a row that goes
    are the columns of that index: the primary key serves only if it is among them.
    """
    of_identity = tuple(column for column in relation.columns if column.is_identity)
    if relation.identity == "d":
        return of_identity
    primary_key = frozenset(catalog.primary_key_of(relation) or ())
    of_primary_key = tuple(column for column in relation.columns if column.name in primary_key)
    is_whole = bool(primary_key) and len(of_primary_key) == len(primary_key)
    if relation.identity == "i":
        is_logged = is_whole and all(column.is_identity for column in of_primary_key)
        return of_primary_key if is_logged else of_identity
    return of_primary_key if is_whole else ()


def _built_in() -> Iterable[PgType]:
    for name, oid, array_oid in _OIDS:
        delimiter = ";" if name == "box" else ","
        yield PgType(oid=oid, name=name, delimiter=delimiter)
        if array_oid:
            yield PgType(oid=array_oid, name=f"_{name}", element_oid=oid, delimiter=delimiter)


_OIDS: Final = (
    ("bool", 16, 1000), ("bytea", 17, 1001), ("char", 18, 1002), ("name", 19, 1003), ("int8", 20, 1016),
    ("int2", 21, 1005), ("int2vector", 22, 1006), ("int4", 23, 1007), ("regproc", 24, 1008),
    ("text", 25, 1009), ("oid", 26, 1028), ("tid", 27, 1010), ("xid", 28, 1011), ("cid", 29, 1012),
    ("oidvector", 30, 1013), ("json", 114, 199), ("xml", 142, 143), ("point", 600, 1017),
    ("lseg", 601, 1018), ("path", 602, 1019), ("box", 603, 1020), ("polygon", 604, 1027),
    ("line", 628, 629), ("cidr", 650, 651), ("float4", 700, 1021), ("float8", 701, 1022),
    ("unknown", 705, 0), ("circle", 718, 719), ("macaddr8", 774, 775), ("money", 790, 791),
    ("macaddr", 829, 1040), ("inet", 869, 1041), ("aclitem", 1033, 1034), ("bpchar", 1042, 1014),
    ("varchar", 1043, 1015), ("date", 1082, 1182), ("time", 1083, 1183), ("timestamp", 1114, 1115),
    ("timestamptz", 1184, 1185), ("interval", 1186, 1187), ("timetz", 1266, 1270), ("bit", 1560, 1561),
    ("varbit", 1562, 1563), ("numeric", 1700, 1231), ("refcursor", 1790, 2201), ("uuid", 2950, 2951),
    ("txid_snapshot", 2970, 2949), ("pg_lsn", 3220, 3221), ("tsvector", 3614, 3643),
    ("gtsvector", 3642, 3644), ("tsquery", 3615, 3645), ("jsonb", 3802, 3807), ("int4range", 3904, 3905),
    ("numrange", 3906, 3907), ("tsrange", 3908, 3909), ("tstzrange", 3910, 3911), ("daterange", 3912, 3913),
    ("int8range", 3926, 3927), ("jsonpath", 4072, 4073), ("int4multirange", 4451, 6150),
    ("nummultirange", 4532, 6151), ("tsmultirange", 4533, 6152), ("tstzmultirange", 4534, 6153),
    ("datemultirange", 4535, 6155), ("int8multirange", 4536, 6157), ("pg_snapshot", 5038, 5039),
    ("xid8", 5069, 271),
)  # fmt: skip
"""Name, number, number of its array: these never change between versions of PostgreSQL."""

BUILT_IN_TYPES: Final[dict[int, PgType]] = {each.oid: each for each in _built_in()}
