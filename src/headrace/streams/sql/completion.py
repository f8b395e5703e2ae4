"""What a shell offers behind what was typed: keywords, tables and columns. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headrace.errors import SqlError
from headrace.streams.sql.tokens import Token, name_text, tokenize

KEYWORDS: Final = (
    "AND", "AS", "BETWEEN", "BY", "CASE", "CAST", "CREATE", "DESCRIBE", "DISTINCT", "DROP", "ELSE", "END",
    "EXISTS", "FROM", "GROUP", "HAVING", "IF", "IN", "INNER", "IS", "JOIN", "LEFT", "LIKE", "LIMIT", "LIVE",
    "NOT", "NULL", "ON", "OR", "ORDER", "SELECT", "SHOW", "TABLE", "TABLES", "THEN", "UNION", "VIEW", "VIEWS",
    "WHEN", "WHERE", "WITH",
)  # fmt: skip
FUNCTIONS: Final = ("avg", "count", "max", "min", "session_window", "sum", "window")
_BEFORE_TABLE: Final = ("FROM", "JOIN", "DESCRIBE", "TABLE", "VIEW")


def candidates(
    line: str, word: str, tables: Sequence[str], columns_of: Callable[[str], Sequence[str]]
) -> list[str]:
    """What the word can become: a table behind FROM and the like, else a column, a function or a keyword."""
    before = line[: len(line) - len(word)] if word and line.endswith(word) else line
    tokens = _tokens(before)
    if tokens and tokens[-1].is_word(*_BEFORE_TABLE):
        return [_written(name) for name in sorted(tables) if _begins(name, word)]
    named = {token.value for token in _tokens(line) if token.kind in {"word", "quoted"}}
    columns = {column for name in tables if name in named for column in columns_of(name)}
    found = [_written(name) for name in sorted(columns) if _begins(name, word)]
    found += [name for name in FUNCTIONS if _begins(name, word)]
    lower = word.islower()
    found += [name.lower() if lower else name for name in KEYWORDS if name.lower().startswith(word.lower())]
    return list(dict.fromkeys(found))


def _tokens(text: str) -> list[Token]:
    try:
        return tokenize(text)
    except SqlError:
        # In the middle of a string or a name in backticks: what comes before it counts.
        return tokenize(text[: max(text.rfind(mark) for mark in "'\"`")])


def _begins(name: str, word: str) -> bool:
    return name.lower().startswith(word.lstrip("`").lower())


def _written(name: str) -> str:
    """In backticks where it needs them."""
    tokens = tokenize(name)
    return name if len(tokens) == 1 and tokens[0].kind == "word" else name_text(name)
