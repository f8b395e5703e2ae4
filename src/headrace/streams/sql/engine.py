"""What runs statements: the tables that there are, and a Spark session that is started when it is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.config import StreamsConfig
from headrace.errors import SqlError
from headrace.streams.load import load_topics
from headrace.streams.session import start_session, stop_session
from headrace.streams.spans import OPEN, Bound
from headrace.streams.sql.bounded import Bounded
from headrace.streams.sql.catalog import Catalog
from headrace.streams.sql.definitions import View, split_columns, table_of
from headrace.streams.sql.live import Live
from headrace.streams.sql.statements import CreateTable, CreateView, Describe, Drop, Show
from headrace.streams.sql.tokens import normal_text, tokenize
from headrace.streams.sql.views import create_view, drop_view
from headrace.streams.workspace import workspace

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyspark.sql import SparkSession

_METADATA: Final = "struct<key, topic, partition, offset, timestamp, headers>; `*` leaves it out"
_LETTER: Final = {
    "cause": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "string",
    "value": "string",
}


class Engine:
    """Runs statements, one after the other. Close it, or Spark goes on."""

    def __init__(
        self, config: StreamsConfig, *, file: Path | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """`say` is told what was guessed, and what takes long."""
        self._config = config
        self._say = say
        self._held = ExitStack()
        self._session: SparkSession | None = None
        self._work_dir: Path | None = None
        self._live_count = 0
        self.catalog = Catalog(
            config=config,
            described={} if file is None else load_topics(file),
            file="" if file is None else str(file),
            say=say,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop Spark, if it runs."""
        self._session = None
        self._held.close()

    @property
    def session(self) -> SparkSession:
        """Spark, started when it is first asked for."""
        if self._session is None:
            self._work_dir = self._held.enter_context(workspace(self._config.data_dir))
            self._say("starting Spark ...")
            slots = os.cpu_count() or 1
            self._session = start_session(self._config, slots=slots, work_dir=self._work_dir)
            self._held.callback(stop_session, self._session)
        return self._session

    def bounded(self, sql: str, *, begin: Bound = OPEN, finish: Bound = OPEN) -> Bounded:
        """A query on a part of the log."""
        return Bounded(session=self.session, catalog=self.catalog, sql=sql, begin=begin, finish=finish)

    def live(self, sql: str, *, all_groups: bool, begin: Bound = OPEN) -> Live:
        """A query that goes on."""
        session = self.session
        assert self._work_dir is not None, "it is there with the session"
        self._live_count += 1
        return Live(
            session=session,
            catalog=self.catalog,
            sql=sql,
            work_dir=self._work_dir / f"live-{self._live_count}",
            all_groups=all_groups,
            begin=begin,
        )

    def create_table(self, statement: CreateTable) -> str:
        """Keep what a topic is; what was done, in words."""
        store, name = self.catalog.store, statement.name
        table = table_of(statement)
        if store.table_path(name).exists():
            if statement.if_not_exists:
                return f"there is a table {name} already"
            raise SqlError(f"there is a table {name} already: DROP TABLE forgets it, and leaves its topic")
        if store.view_path(name).exists():
            raise SqlError(f"there is a view {name} already: give the table another name")
        store.keep_table(table)
        return f"table {name} is the topic {table.topic.name}"

    def create_view(self, statement: CreateView) -> View:
        """Keep a view, or find the one that there is where that is asked for."""
        if statement.if_not_exists and self.catalog.store.view_path(statement.name).exists():
            view = self.catalog.store.views()[statement.name]
            if normal_text(tokenize(view.query)) != normal_text(tokenize(statement.query)):
                self._say(
                    f"note: there is a view {view.name} already, with another query, which stays: "
                    f"{view.query}"
                )
            return view
        return create_view(self.session, self.catalog, statement)

    def drop(self, statement: Drop) -> str:
        """Forget a table or view; what was done, in words."""
        kind, name = statement.kind, statement.name
        if kind == "view":
            is_gone = drop_view(self._config, self.catalog, name)
        else:
            is_gone = self.catalog.store.forget_table(name)
        if is_gone:
            return f"{kind} {name} is forgotten; its topic stays: `headrace topics delete` deletes one"
        if statement.if_exists:
            return f"there is no {kind} {name}"
        raise SqlError(f"there is no {kind} {name}: SHOW {kind.upper()}S lists those that there are")

    def show(self, statement: Show) -> list[dict[str, Any]]:
        """The tables, or the views with their queries."""
        if statement.kind == "tables":
            return [asdict(listed) for listed in self.catalog.list_tables()]
        return [
            {
                "name": view.name,
                "reads": ", ".join(table.name for table in view.tables),
                "query": " ".join(view.query.split()),
            }
            for view in self.catalog.store.views().values()
        ]

    def describe(self, statement: Describe) -> list[dict[str, Any]]:
        """The columns of a table."""
        columns = self.columns(statement.name)
        return [{"column": name, "type": kind} for name, kind in columns.items()]

    def columns(self, name: str) -> dict[str, str]:
        """The columns of a table, and their types."""
        table = self.catalog.find(name)
        if table.is_dead_letters:
            own = dict(_LETTER)
        elif table.topic.schema is not None:
            own = split_columns(table.topic.schema)
        else:
            own = {"value": "binary" if table.topic.format == "bytes" else "string"}
        is_table = table.topic.format in {"upsert", "debezium"}
        return own if is_table else own | {"_kafka": _METADATA}
