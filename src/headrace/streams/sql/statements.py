"""The statements of `headrace sql`: queries, which are Spark's, and those that are ours.

    [LIVE] SELECT ...                     also WITH, VALUES, FROM, TABLE
    CREATE TABLE [IF NOT EXISTS] name [(columns)] [WITH (option = 'value', ...)]
    CREATE VIEW [IF NOT EXISTS] name [(columns)] [WITH (option = 'value', ...)] AS SELECT ...
    DROP TABLE | VIEW [IF EXISTS] name
    SHOW TABLES | VIEWS
    DESCRIBE name

Everything else is refused before Spark sees it, because Spark would run at once what changes data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from headrace.errors import SqlError
from headrace.streams.sql.refused import find_refused
from headrace.streams.sql.tokens import Token, place, tokenize

_QUERY_WORDS: Final = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
_OWN: Final = "SELECT, CREATE TABLE, CREATE VIEW, DROP TABLE, DROP VIEW, SHOW TABLES, SHOW VIEWS and DESCRIBE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What Spark computes."""

    sql: str
    is_live: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """Describe a topic."""

    name: str
    columns: str | None = None
    """In Spark's words, as they were written."""
    options: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """Make a pipeline of a query."""

    name: str
    query: str
    columns: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Forget a table or a view."""

    kind: Literal["table", "view"]
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """List tables or views."""

    kind: Literal["tables", "views"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """List the columns of a table."""

    name: str


Statement = Query | CreateTable | CreateView | Drop | Show | Describe
_S = TypeVar("_S", bound=Statement)


def parse_statements(text: str) -> list[Statement]:
    """The statements of a text, which semicolons part."""
    parsed, part = [], []
    for token in tokenize(text):
        if not token.is_symbol(";"):
            part.append(token)
        elif part:
            parsed.append(_Parser(text, part).statement())
            part = []
    if part:
        parsed.append(_Parser(text, part).statement())
    return parsed


def is_complete(text: str) -> bool:
    """Whether what was typed ends with a semicolon, outside of quotes and comments."""
    try:
        tokens = tokenize(text)
    except SqlError:
        return False
    return bool(tokens) and tokens[-1].is_symbol(";")


class _Parser:
    """Reads one statement from its first token to its last."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0

    def statement(self) -> Statement:
        first = self._tokens[0]
        if first.is_word("LIVE"):
            self._next = 1
            return Query(sql=self._query(), is_live=True)
        if first.is_word(*_QUERY_WORDS) or first.is_symbol("("):
            return Query(sql=self._query())
        self._next = 1
        if first.is_word("CREATE"):
            return self._create()
        if first.is_word("DROP"):
            return self._ended(self._drop())
        if first.is_word("SHOW"):
            kind: Literal["tables", "views"] = "views" if self._accept("VIEWS") else "tables"
            if kind == "tables":
                self._expect("TABLES")
            return self._ended(Show(kind=kind))
        if first.is_word("DESCRIBE", "DESC"):
            self._accept("TABLE")
            return self._ended(Describe(name=self._name("table")))
        raise SqlError(
            f"{self._place(first)}: {first.text!r} begins no statement of headrace sql, which has {_OWN}; "
            "what is in topics is changed by who writes to them (`headrace produce`)"
        )

    def _create(self) -> CreateTable | CreateView:
        if (token := self._peek()) is not None and token.is_word("OR", "TEMP", "TEMPORARY", "GLOBAL"):
            raise self._error(token, "write CREATE TABLE or CREATE VIEW; DROP what is to be made anew first")
        self._accept("MATERIALIZED")
        is_view = self._accept("VIEW")
        if not is_view:
            self._expect("TABLE", "write CREATE TABLE or CREATE VIEW")
        if_not_exists = self._accept("IF")
        if if_not_exists:
            self._expect("NOT")
            self._expect("EXISTS")
        name = self._name("view" if is_view else "table")
        columns = self._columns()
        options = self._options()
        if not is_view:
            return self._ended(
                CreateTable(name=name, columns=columns, options=options, if_not_exists=if_not_exists)
            )
        self._expect("AS", "write CREATE VIEW name AS SELECT ...")
        return CreateView(
            name=name, query=self._query(), columns=columns, options=options, if_not_exists=if_not_exists
        )

    def _drop(self) -> Drop:
        kind: Literal["table", "view"] = "view" if self._accept("VIEW") else "table"
        if kind == "table":
            self._expect("TABLE", "write DROP TABLE or DROP VIEW")
        if_exists = self._accept("IF")
        if if_exists:
            self._expect("EXISTS")
        return Drop(kind=kind, name=self._name(kind), if_exists=if_exists)

    def _query(self) -> str:
        """The rest of the statement, which must be a query."""
        first = self._peek()
        if first is None:
            raise SqlError(f"{place(self._text, len(self._text))}: here a SELECT is missing")
        if not (first.is_word(*_QUERY_WORDS) or first.is_symbol("(")):
            raise self._error(first, "a query begins with SELECT or WITH")
        rest = self._tokens[self._next :]
        if (refused := find_refused(rest)) is not None:
            raise self._error(*refused)
        return self._text[first.start : rest[-1].end]

    def _columns(self) -> str | None:
        """What is in the parentheses, as it is written."""
        opening = self._peek()
        if opening is None or not opening.is_symbol("("):
            return None
        depth = 0
        for index in range(self._next, len(self._tokens)):
            token = self._tokens[index]
            depth += token.is_symbol("(") - token.is_symbol(")")
            if depth == 0:
                self._next = index + 1
                return self._text[opening.end : token.start].strip() or None
        raise self._error(opening, "this parenthesis has no end")

    def _options(self) -> dict[str, str]:
        options: dict[str, str] = {}
        if not self._accept("WITH"):
            return options
        self._symbol("(")
        while True:
            name = self._name("option").lower()
            self._symbol("=")
            value = self._peek()
            if value is None or value.kind == "symbol":
                raise self._missing(value, "a value in quotes")
            self._next += 1
            if options.setdefault(name, value.value) != value.value:
                raise self._error(value, f"the option {name} is given twice")
            if (token := self._peek()) is None or not token.is_symbol(","):
                break
            self._next += 1
        self._symbol(")")
        return options

    def _name(self, what: str) -> str:
        """One name; words that are joined by dots are one, too."""
        token = self._peek()
        if token is None or token.kind not in {"word", "quoted"}:
            raise self._missing(token, f"the name of a {what}")
        self._next += 1
        name = token.value
        while (dot := self._peek()) is not None and dot.is_symbol("."):
            self._next += 1
            name += f".{self._name(what)}"
        return name

    def _peek(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _accept(self, word: str) -> bool:
        token = self._peek()
        is_there = token is not None and token.is_word(word)
        self._next += is_there
        return is_there

    def _expect(self, word: str, advice: str = "") -> None:
        if not self._accept(word):
            raise self._missing(self._peek(), word, advice)

    def _symbol(self, symbol: str) -> None:
        token = self._peek()
        if token is None or not token.is_symbol(symbol):
            raise self._missing(token, symbol)
        self._next += 1

    def _ended(self, statement: _S) -> _S:
        token = self._peek()
        if token is not None:
            raise self._error(token, f"the statement should end before {token.text!r}")
        return statement

    def _missing(self, token: Token | None, wanted: str, advice: str = "") -> SqlError:
        found = "nothing" if token is None else repr(token.text)
        position = self._tokens[-1].end if token is None else token.start
        told = f"; {advice}" if advice else ""
        return SqlError(f"{place(self._text, position)}: there is {found} instead of {wanted}{told}")

    def _error(self, token: Token, what: str) -> SqlError:
        return SqlError(f"{self._place(token)}: {what}")

    def _place(self, token: Token) -> str:
        return place(self._text, token.start)
