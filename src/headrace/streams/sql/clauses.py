"""The clauses of a query that has the plain form

    SELECT item [AS name], ... FROM ... [WHERE ...] [GROUP BY item, ...] [HAVING ...] [ORDER BY, LIMIT, ...]

A query of another form (WITH, UNION, parentheses) has none, and is left to Spark as a whole. Texts are slices
of what was written: Spark reads them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.streams.sql.tokens import Token, at_top, normal_text, tokenize

_SETS: Final = ("UNION", "INTERSECT", "EXCEPT", "MINUS")
_TAIL: Final = ("ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW", "QUALIFY")
_CLAUSES: Final = ("FROM", "WHERE", "GROUP", "HAVING", *_TAIL)
_OPERATORS: Final = (
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "IN",
    "IS",
    "LIKE",
    "ILIKE",
    "RLIKE",
    "REGEXP",
    "DIV",
    "FROM",
    "COLLATE",
    "TO",
    "DISTINCT",
    "ALL",
    "INTERVAL",
)
"""Words behind which a name is a part of the expression, and no alias of it."""
_UNITS: Final = (
    "YEAR",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "MICROSECOND",
    "NANOSECOND",
)
_WINDOWS: Final = ("window", "session_window")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is selected, or grouped by."""

    text: str
    normal: str
    """The same for texts that mean the same: see `normal_text`."""
    alias: str | None = None

    @property
    def name(self) -> str:
        """What its column is called; as Spark calls it where it has no name of its own."""
        if self.alias is not None:
            return self.alias
        if self.is_path:
            return tokenize(self.text)[-1].value
        window = window_call(self)
        return self.text if window is None else window.function

    @property
    def is_path(self) -> bool:
        """Whether it is a column, or a part of one."""
        tokens = tokenize(self.text)
        return len(tokens) % 2 == 1 and all(
            token.is_symbol(".") if index % 2 else token.kind in {"word", "quoted"}
            for index, token in enumerate(tokens)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCall:
    """`window(at, '10 minutes', '1 minute')` or `session_window(at, '30 minutes')`."""

    function: str
    column: str
    lengths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """The clauses of a query of the plain form."""

    select: str
    """The position behind SELECT, and what is there: all items as they are written."""
    items: tuple[Item, ...]
    source: str
    """What is behind FROM."""
    where: str | None = None
    groups: tuple[Item, ...] = ()
    tail: str | None = None
    """The first word of what is neither, such as HAVING, ORDER or LIMIT; and DISTINCT."""


def parse_clauses(sql: str) -> Clauses | None:
    """The clauses; None if the query has another form."""
    tokens = tokenize(sql)
    if not tokens or not tokens[0].is_word("SELECT"):
        return None
    top = at_top(tokens)
    if any(token.is_word(*_SETS) for token in top):
        return None
    starts = [token for token in top if token.is_word(*_CLAUSES) and not _is_part_of_name(token, tokens)]
    parts = _parts(tokens, starts)
    if "FROM" not in parts:
        return None
    selected = parts["SELECT"]
    is_distinct = bool(selected) and selected[0].is_word("DISTINCT")
    tail = next((word for word in parts if word in {"HAVING", *_TAIL}), None)
    where = parts.get("WHERE")
    return Clauses(
        select=_text(sql, selected),
        items=tuple(_item(sql, part) for part in _by_comma(selected)),
        source=_text(sql, parts["FROM"]),
        where=None if where is None else _text(sql, where),
        groups=tuple(_item(sql, part, named=False) for part in _by_comma(parts.get("GROUP", [])[1:])),
        tail="DISTINCT" if is_distinct else tail,
    )


def window_call(item: Item) -> WindowCall | None:
    """The window of time that the item is, if it is one."""
    tokens = tokenize(item.text)
    if len(tokens) < 4 or tokens[0].text.lower() not in _WINDOWS or not tokens[1].is_symbol("("):
        return None
    if not tokens[-1].is_symbol(")"):
        return None
    column, *lengths = _by_comma(tokens[2:-1])
    are_plain = len(column) == 1 and all(len(each) == 1 and each[0].kind == "string" for each in lengths)
    if not are_plain or not lengths:
        return None
    return WindowCall(
        function=tokens[0].text.lower(),
        column=column[0].value,
        lengths=tuple(each[0].value for each in lengths),
    )


def calls_window(item: Item) -> bool:
    """Whether it begins as a window of time does, of whatever form."""
    tokens = tokenize(item.text)
    return len(tokens) > 1 and tokens[0].text.lower() in _WINDOWS and tokens[1].is_symbol("(")


def mentions(sql: str, *names: str) -> bool:
    """Whether one of the names is in it."""
    return any(token.kind in {"word", "quoted"} and token.value.lower() in names for token in tokenize(sql))


def mentions_whole(sql: str, name: str) -> bool:
    """Whether the name is in it, and not only for a part of it, as in `_kafka.offset`."""
    tokens = tokenize(sql)
    return any(
        token.kind in {"word", "quoted"}
        and token.value.lower() == name
        and not (following is not None and following.is_symbol("."))
        for token, following in zip(tokens, [*tokens[1:], None], strict=True)
    )


def _is_part_of_name(token: Token, tokens: Sequence[Token]) -> bool:
    """Whether it stands behind a dot, or is a column such as `window` where a clause can't be."""
    index = tokens.index(token)
    if index > 0 and tokens[index - 1].is_symbol("."):
        return True
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    # The clause is `WINDOW name AS (...)`; a column is called so as well.
    return token.is_word("WINDOW") and (following is None or following.kind not in {"word", "quoted"})


def _parts(tokens: Sequence[Token], starts: Sequence[Token]) -> dict[str, list[Token]]:
    """The tokens behind each clause's first word, by that word."""
    words = {id(token): token.text.upper() for token in starts}
    parts: dict[str, list[Token]] = {"SELECT": []}
    current = parts["SELECT"]
    for token in tokens[1:]:
        word = words.get(id(token))
        if word is None or (word in parts and word == "FROM"):
            current.append(token)
        else:
            current = parts.setdefault(word, [])
    return parts


def _by_comma(tokens: Sequence[Token]) -> list[list[Token]]:
    """Parted at the commas that are in no parentheses."""
    if not tokens:
        return []
    commas = {id(token) for token in at_top(tokens) if token.is_symbol(",")}
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if id(token) in commas:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _item(sql: str, tokens: list[Token], *, named: bool = True) -> Item:
    alias = None
    if named and len(tokens) > 2 and tokens[-2].is_word("AS"):
        alias, tokens = tokens[-1].value, tokens[:-2]
    elif named and len(tokens) > 1 and _is_aliased(tokens):
        alias, tokens = tokens[-1].value, tokens[:-1]
    return Item(text=_text(sql, tokens), normal=normal_text(tokens), alias=alias)


def _is_aliased(tokens: Sequence[Token]) -> bool:
    """Whether the last one is a name for the others, without AS."""
    *others, before, last = tokens
    if last.kind not in {"word", "quoted"} or last.is_word("END", "NULL", "TRUE", "FALSE"):
        return False
    if before.is_word(*_OPERATORS):
        return False
    is_length = before.kind in {"number", "string"} and any(token.is_word("INTERVAL") for token in others)
    if is_length and last.text.upper().removesuffix("S") in _UNITS:
        return False
    return before.kind != "symbol" or before.text in ")]"


def _text(sql: str, tokens: Sequence[Token]) -> str:
    return sql[tokens[0].start : tokens[-1].end] if tokens else ""
