"""Which tables there are: those that were created, those that files describe, and the topics of the broker.

A name is looked for among the tables of CREATE TABLE, the views, the topics that the given file describes,
and the broker's topics, in this order. A topic that nobody has described is described by its last records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from headrace.config import StreamsConfig
from headrace.errors import SqlError
from headrace.streams.admin import Cluster
from headrace.streams.sql.definitions import Table, View, dead_letters_table, is_dead_letters
from headrace.streams.sql.infer import infer
from headrace.streams.sql.sample import sample
from headrace.streams.sql.sentences import near
from headrace.streams.sql.shapes import shape_of, topic_key
from headrace.streams.sql.store import Store
from headrace.streams.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A table in a list."""

    name: str
    kind: str
    """`table`, `view`, `topic`, `dead letters`."""
    topic: str
    described_by: str


@dataclass(slots=True, kw_only=True)
class Catalog:
    """The tables of a data directory, a file and a broker. Belongs to one thread."""

    config: StreamsConfig
    described: Mapping[str, Topic] = field(default_factory=dict)
    """By name: the topics that a file describes."""
    file: str = ""
    say: Callable[[str], None] = lambda _line: None
    """Is told what was guessed."""
    _guessed: dict[str, Table] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Where tables and views are kept."""
        return Store(data_dir=self.config.data_dir)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Say nothing meanwhile; what is guessed now is told when it is asked for."""
        say, guessed = self.say, dict(self._guessed)
        self.say = lambda _line: None
        try:
            yield
        finally:
            self.say, self._guessed = say, guessed

    def list_tables(self) -> list[Listed]:
        """All of them."""
        found = {
            table.name: Listed(
                name=table.name, kind="table", topic=table.topic.name, described_by="CREATE TABLE"
            )
            for table in self.store.tables().values()
        }
        for name in self.store.views():
            found.setdefault(name, Listed(name=name, kind="view", topic=name, described_by="CREATE VIEW"))
        for name, topic in self.described.items():
            listed = Listed(name=name, kind="topic", topic=topic.name, described_by=self.file)
            found.setdefault(name, listed)
        for name in self._broker_topics():
            kind = "dead letters" if is_dead_letters(name) else "topic"
            by = "Headrace" if is_dead_letters(name) else "its last records"
            found.setdefault(name, Listed(name=name, kind=kind, topic=name, described_by=by))
        return [found[name] for name in sorted(found)]

    def find(self, name: str) -> Table:
        """The table of that name; raise if there is none."""
        known = {listed.name: listed for listed in self.list_tables()}
        alike = [each for each in known if each.lower() == name.lower()]
        if len(alike) > 1:
            raise SqlError(
                f"{' and '.join(alike)} differ in capitals only, which SQL does not tell apart: give one of "
                "them another name by CREATE TABLE other (...) WITH (topic = '...')"
            )
        if not alike:
            raise SqlError(self._unknown(name, list(known)))
        return self._table(known[alike[0]])

    def _table(self, listed: Listed) -> Table:
        name = listed.name
        if listed.kind == "table":
            return self.store.tables()[name]
        if listed.kind == "view":
            table = table_of_view(self.store.views()[name])
            return self._guess(name) if table is None else table
        if name in self.described:
            topic = replace(self.described[name], start="earliest")
            return Table(name=name, topic=topic, origin=self.file)
        return dead_letters_table(name) if is_dead_letters(name) else self._guess(name)

    def _guess(self, name: str) -> Table:
        if name in self._guessed:
            return self._guessed[name]
        values = sample(self.config, name)
        found = infer(values)
        advice = (
            f"CREATE TABLE `{name}` (id string, ...), or --file FILE with its hr.topic, says what they are"
        )
        if found is None:
            raise SqlError(f"topic {name} has no records by which its columns could be told: {advice}")
        table = Table(
            name=name,
            topic=Topic(name=name, format=found.format, schema=found.columns),
            origin=f"its last {len(values)} records",
        )
        what = f"the columns of {name}" if found.columns else f"that {name} is {found.format}"
        self.say(f"note: {what} were told by {table.origin}; {advice}")
        if found.is_keyed:
            self.say(
                f"note: {name} has records without a value, which delete: to read its current rows, write "
                "CREATE TABLE ... WITH (format = 'upsert', key = '...')"
            )
        self._guessed[name] = table
        return table

    def _broker_topics(self) -> list[str]:
        return [name for name in Cluster(self.config).partition_counts() if not name.startswith("__")]

    def _unknown(self, name: str, known: Sequence[str]) -> str:
        alike = near(name, list(known))
        told = f"did you mean {', '.join(alike)}?" if alike else "SHOW TABLES lists those that there are"
        return f"there is no table {name} at {self.config.bootstrap}: {told}"


def table_of_view(view: View) -> Table | None:
    """A view's topic, as others read it; None if its columns are not known."""
    if view.columns is None:
        return None
    shape = shape_of(view)
    topic = Topic(
        name=view.name,
        schema=view.columns,
        format="upsert" if shape.is_keyed else "json",
        key=topic_key(view, shape),
    )
    return Table(name=view.name, topic=topic, origin="CREATE VIEW")
