"""A question that a read model answers over HTTP.

    @dataclass(frozen=True, kw_only=True)
    class ByAccount:
        account: str

    @query("balance", projection="balances")
    def balance(asked: ByAccount) -> Balance: ...

It is asked by `GET /queries/balance?account=account-1`. Parameters are the fields of the argument's class,
and the answer is whatever msgspec can write; None becomes 404. With `&position=12`, it is answered once the
projection has seen so far: who has sent a command reads what it did.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
POSITION: Final = "position"
"""The parameter by which a query waits for a projection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question. Make one with `@query`."""

    name: str
    answer: Callable[[Any], Any]
    asked: type
    answered: Any
    projection: str | None = None
    """What has to have come to a position that is asked for."""


def query(name: str, *, projection: str | None = None) -> Callable[[Callable[[Any], Any]], Query]:
    """Make a query of a function of one argument whose hints say what is asked and answered."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"a query can't be called {name!r}: letters, digits, - and _")

    def make(answer: Callable[[Any], Any]) -> Query:
        hints = typing.get_type_hints(answer)
        parameters = list(inspect.signature(answer).parameters)
        if len(parameters) != 1 or parameters[0] not in hints or "return" not in hints:
            raise ConfigError(f"query {name} needs one argument, and hints of what it takes and gives")
        return Query(
            name=name,
            answer=answer,
            asked=hints[parameters[0]],
            answered=hints["return"],
            projection=projection,
        )

    return make
