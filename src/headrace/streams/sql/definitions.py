"""Tables and views, and the statements that they are kept as.

A view is kept with the statements of all tables that it reads, and with the columns that it has, so that its
file says all that is needed to run and to read it:

    CREATE TABLE `orders` (id string, total double) WITH (topic = 'orders', format = 'json');
    CREATE VIEW `large` (`id` STRING,`total` DOUBLE) AS
    SELECT id, total FROM orders WHERE total > 1000;
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast, get_args

from headrace.errors import HeadraceError, SqlError
from headrace.streams.sql.statements import CreateTable, CreateView, Statement, parse_statements
from headrace.streams.sql.tokens import Token, name_text, string_text, tokenize
from headrace.streams.time.policies import from_json, to_json
from headrace.streams.topic import DEAD_LETTERS_SUFFIX, WITH_SCHEMA, Format, Topic

DEAD_LETTERS: Final = "dead-letters"
"""The format of a topic of dead letters."""
_TABLE_OPTIONS: Final = ("topic", "format", "key", "event_time", "watermark", "max_ahead")
_VIEW_OPTIONS: Final = ("key", "partitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A topic by the name that queries have for it."""

    name: str
    topic: Topic
    is_dead_letters: bool = False
    origin: str = "CREATE TABLE"
    """Who has said what its columns are."""

    @property
    def format(self) -> str:
        """Of its records."""
        return DEAD_LETTERS if self.is_dead_letters else self.topic.format


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A query that runs as a pipeline of its name, into the topic of its name."""

    name: str
    query: str
    tables: tuple[Table, ...] = ()
    """Those that it reads."""
    columns: str | None = None
    """Those that it has; not known before Spark has looked at it."""
    key: str | None = None
    """The column that is the key of its records, where it was asked for."""
    partitions: int | None = None


def dead_letters_table(topic: str) -> Table:
    """The table of a topic of dead letters."""
    described = Topic(name=topic, format="bytes")
    return Table(name=topic, topic=described, is_dead_letters=True, origin="dead letters")


def table_of(statement: CreateTable) -> Table:
    """The table that the statement describes."""
    options = statement.options
    _check_options(statement.name, "table", options, _TABLE_OPTIONS)
    name = options.get("topic", statement.name)
    of = options.get("format", "json")
    if of == DEAD_LETTERS:
        return replace(dead_letters_table(name), name=statement.name, origin="CREATE TABLE")
    if of not in get_args(Format):
        raise SqlError(
            f"table {statement.name}: the format is {of!r}; use {', '.join(get_args(Format))} or "
            f"{DEAD_LETTERS}"
        )
    if of in WITH_SCHEMA and statement.columns is None:
        raise SqlError(
            f"table {statement.name}: a topic of {of} needs columns: write CREATE TABLE {statement.name} "
            "(id string, ...) WITH (...)"
        )
    watermark = options.get("watermark")
    is_policy = watermark is not None and watermark.startswith("{")
    try:
        topic = Topic(
            name=name,
            schema=statement.columns,
            format=cast("Format", of),
            key=key_columns(options.get("key")),
            event_time=options.get("event_time"),
            watermark=from_json(watermark or "") if is_policy else watermark,
            max_ahead=options.get("max_ahead"),
        )
    except HeadraceError as error:
        raise SqlError(f"table {statement.name}: {error}") from error
    return Table(name=statement.name, topic=topic)


def key_columns(text: str | None) -> tuple[str, ...]:
    """The columns that an option names, parted by commas."""
    return tuple(name.strip() for name in text.split(",")) if text is not None else ()


def table_text(table: Table) -> str:
    """The statement that describes the table."""
    topic = table.topic
    options: dict[str, str | None] = {
        "topic": topic.name,
        "format": table.format,
        "key": ", ".join(topic.key) or None,
        "event_time": topic.event_time,
        "watermark": _watermark_text(topic),
        "max_ahead": topic.max_ahead,
    }
    columns = f" ({topic.schema})" if topic.schema is not None else ""
    return f"CREATE TABLE {name_text(table.name)}{columns}{_options_text(options)}"


def view_of(statement: CreateView, tables: Sequence[Table] = ()) -> View:
    """The view that the statement describes."""
    options = statement.options
    _check_options(statement.name, "view", options, _VIEW_OPTIONS)
    partitions = options.get("partitions")
    if partitions is not None and not (partitions.isdecimal() and int(partitions) > 0):
        raise SqlError(f"view {statement.name}: partitions is {partitions!r}; use at least 1")
    return View(
        name=statement.name,
        query=statement.query,
        tables=tuple(tables),
        columns=statement.columns,
        key=options.get("key"),
        partitions=None if partitions is None else int(partitions),
    )


def view_text(view: View) -> str:
    """The statements that describe the view and the tables that it reads."""
    options = {"key": view.key, "partitions": None if view.partitions is None else str(view.partitions)}
    columns = f" ({view.columns})" if view.columns is not None else ""
    statements = [
        *(table_text(table) for table in view.tables),
        f"CREATE VIEW {name_text(view.name)}{columns}{_options_text(options)} AS\n{view.query}",
    ]
    return "".join(f"{statement}\n;\n" for statement in statements)


def parse_definitions(text: str, path: str) -> tuple[list[Table], list[View]]:
    """The tables and views of a file."""
    try:
        statements = parse_statements(text)
        tables = [table_of(each) for each in statements if isinstance(each, CreateTable)]
        views = [view_of(each) for each in statements if isinstance(each, CreateView)]
    except SqlError as error:
        raise SqlError(f"{path}, {error}") from error
    _refuse_others(statements, path)
    return tables, views


def _refuse_others(statements: Sequence[Statement], path: str) -> None:
    for each in statements:
        if not isinstance(each, CreateTable | CreateView):
            raise SqlError(
                f"{path} has a statement that describes nothing ({type(each).__name__}): leave only CREATE "
                "TABLE and CREATE VIEW in it"
            )


def _check_options(name: str, kind: str, given: Mapping[str, str], known: Sequence[str]) -> None:
    for option in given:
        if option not in known:
            raise SqlError(f"{kind} {name} has no option {option!r}: there are {', '.join(known)}")


def _options_text(options: Mapping[str, str | None]) -> str:
    given = [f"{name} = {string_text(value)}" for name, value in options.items() if value is not None]
    return f" WITH ({', '.join(given)})" if given else ""


def _watermark_text(topic: Topic) -> str | None:
    watermark = topic.watermark
    return watermark if watermark is None or isinstance(watermark, str) else to_json(watermark)


def is_dead_letters(topic: str) -> bool:
    """Whether the topic is one of dead letters, by its name."""
    return topic.endswith(DEAD_LETTERS_SUFFIX)


def split_columns(columns: str) -> dict[str, str]:
    """The columns of Spark's words, by name: the type, and what is said of it."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokenize(columns):
        depth += token.is_symbol("(") + token.is_symbol("<") - token.is_symbol(")") - token.is_symbol(">")
        if depth == 0 and token.is_symbol(","):
            parts.append([])
        else:
            parts[-1].append(token)
    return {
        part[0].value: columns[part[1].start : part[-1].end].lstrip(": ") for part in parts if len(part) > 1
    }
