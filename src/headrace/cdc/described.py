"""The tables that the stream has described, by number: how rows of each are written, if they are."""

from __future__ import annotations

from headrace.cdc.catalog import Catalog, PgType
from headrace.cdc.known_keys import KnownKeys
from headrace.cdc.messages import Relation, Type
from headrace.cdc.notices import Notices
from headrace.cdc.outbox import Outbox, OutboxRoute
from headrace.cdc.selection import Selection
from headrace.cdc.settings import EventSettings
from headrace.cdc.tables import Table
from headrace.errors import ConfigError, ProtocolError

Described = Table | OutboxRoute | None
"""None, if the table is not captured."""


class DescribedTables:
    """Knows the last description of each table. Belongs to one thread."""

    def __init__(
        self,
        *,
        settings: EventSettings,
        catalog: KnownKeys,
        selection: Selection,
        outbox: Outbox | None,
        notices: Notices,
    ) -> None:
        self._settings = settings
        self.catalog = TypesByName(catalog)
        self._keys = catalog
        self._selection = selection
        self._outbox = outbox
        self._notices = notices
        self._relations: dict[int, Relation] = {}
        self._described: dict[int, Described] = {}
        self._owners: dict[str, int] = {}

    def relation(self, oid: int) -> Relation | None:
        """How the table was last described."""
        return self._relations.get(oid)

    def get(self, oid: int) -> Described:
        """How the table's rows are written; None, if it is not captured."""
        try:
            return self._described[oid]
        except KeyError:
            raise ProtocolError(
                f"a row came of table {oid}, which was not described before: start replication anew"
            ) from None

    def describe(self, relation: Relation) -> Described:
        """From here on, rows of the table are like this."""
        described = self._made(relation)
        self._relations[relation.oid] = relation
        self._described[relation.oid] = described
        return described

    def know(self, relation: Relation) -> Described:
        """The same of a table that the database, and not the stream, describes as it is now."""
        self._keys.learn(relation)
        return self.describe(relation)

    def name_type(self, named: Type) -> None:
        """A type that is not built in has this name."""
        self.catalog.name_type(named)

    def _made(self, relation: Relation) -> Described:
        if self._outbox is not None and self._outbox.is_table(relation):
            return OutboxRoute(self._outbox, relation, self._notices.tell)
        if not self._selection.takes_table(relation.schema, relation.name):
            return None
        table = Table(
            relation,
            settings=self._settings,
            catalog=self.catalog,
            selection=self._selection,
            notify=self._notices.tell,
        )
        self._claim_topic(table)
        if not table.has_key:
            self._notices.tell(
                f"{table.collection} has no primary key: its events have no keys, can't be compacted, and "
                "come to one partition or another. Add a primary key, if that matters"
            )
        return table

    def _claim_topic(self, table: Table) -> None:
        oid = table.relation.oid
        owner = self._owners.setdefault(table.topic, oid)
        other = self._relations.get(owner)
        if owner != oid and other is not None:
            is_same_name = (other.schema, other.name) == (table.relation.schema, table.relation.name)
            if not is_same_name:
                raise ConfigError(
                    f"{table.collection} and {other.schema}.{other.name} would both be written to "
                    f"{table.topic}: rename one of them, or exclude it"
                )
        self._owners[table.topic] = oid


class TypesByName:
    """A catalog that also knows the names of types that the stream has told."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._named: dict[int, PgType] = {}

    def name_type(self, named: Type) -> None:
        """A type that is not built in has this name."""
        self._named[named.oid] = PgType(oid=named.oid, name=named.name, schema=named.schema)

    def type_of(self, oid: int) -> PgType | None:
        """What the catalog knows, or at least the name."""
        return self._catalog.type_of(oid) or self._named.get(oid)

    def primary_key_of(self, relation: Relation) -> tuple[str, ...] | None:
        """What the catalog knows."""
        return self._catalog.primary_key_of(relation)
