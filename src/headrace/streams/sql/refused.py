"""What no query may have: what changes data, and what runs other programs or any method of Java."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from headrace.streams.sql.tokens import Token, at_top

_CHANGES: Final = ("INSERT", "DELETE", "UPDATE", "MERGE")
_QUERIES: Final = ("SELECT", "VALUES", "FROM", "TABLE", "MAP", "REDUCE")
_JAVA: Final = {"reflect", "java_method", "try_reflect"}
_UNCHANGED: Final = "queries change nothing: write to topics with `headrace produce`"


def find_refused(tokens: Sequence[Token]) -> tuple[Token, str] | None:
    """The first token of a query that may not be there, and why; None if there is none."""
    if (verb := _verb(tokens)) is not None and verb.is_word(*_CHANGES):
        return verb, _UNCHANGED
    for token, following in pairwise(tokens):
        is_call = token.kind in {"word", "quoted"} and following.is_symbol("(")
        if token.is_word("INSERT") and following.is_word("INTO", "OVERWRITE", "WITH"):
            return token, _UNCHANGED
        if token.is_word("USING") and following.kind == "string":
            return token, "queries run no other programs: use a pipeline in Python"
        if is_call and token.value.lower() in _JAVA:
            return token, f"queries call no methods of Java, as {token.text} does: use a pipeline in Python"
        if is_call and token.is_word("IDENTIFIER"):
            return token, "write the name itself instead of IDENTIFIER(...)"
    return None


def _verb(tokens: Sequence[Token]) -> Token | None:
    """Behind WITH and its queries, the word that says what is done."""
    if not tokens[0].is_word("WITH"):
        return None
    top = at_top(tokens)
    behind = (token for before, token in pairwise(top) if before.is_symbol(")"))
    return next((token for token in behind if token.is_word(*_QUERIES, *_CHANGES)), None)
