"""Columns without the table's name, or its alias, before them. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from headrace.errors import SqlError
from headrace.streams.sql.tokens import at_top, tokenize

_NAMES: Final = {"word", "quoted"}


def alias_of(source: str) -> str | None:
    """What a source of the form `name [AS] alias` is called; None if it has another form."""
    tokens = tokenize(source)
    if len(tokens) == 3 and tokens[1].is_word("AS"):
        del tokens[1]
    is_plain = len(tokens) in {1, 2} and all(token.kind in _NAMES for token in tokens)
    return tokens[-1].value.lower() if is_plain else None


def unqualified(text: str, source: str, columns: Sequence[str]) -> str:
    """The expression without what stands for the source before columns; raise where that can't be told.

    `source` is what is behind FROM, `columns` those that it has.
    """
    tokens, alias = tokenize(text), alias_of(source)
    words = {token.value.lower() for token in at_top(tokenize(source)) if token.kind in _NAMES}
    known = {column.lower() for column in columns}
    kept, position = "", 0
    for index, (token, following) in enumerate(pairwise(tokens)):
        is_first = token.kind in _NAMES and (index == 0 or not tokens[index - 1].is_symbol("."))
        if not is_first or not following.is_symbol("."):
            continue
        name = token.value.lower()
        field = tokens[index + 2].value.lower() if index + 2 < len(tokens) else ""
        is_part = name in known and field not in known
        if name == alias and not is_part:
            kept += text[position : token.start]
            position = following.end
        elif alias is None and name in words and not is_part:
            raise SqlError(
                f"{token.text}.{field} may be a column of a table, or a part of a column: write columns "
                "without the name of a table, or make a view for each step"
            )
    return kept + text[position:]
