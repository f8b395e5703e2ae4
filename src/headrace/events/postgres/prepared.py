"""Calls that are prepared once for each connection, and get all values as texts.

A cursor of psycopg looks up how to write each value, reads its own query, and describes each column of the
result, in every call: that takes longer than the database needs for one event. Here the texts go to the
database as they are, and results are read by loaders that each connection looks up once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

from psycopg import Error, errors, generators, pq

from headrace.events.postgres.connections import Connection

Text = bytes | None
"""A value as the database reads it, in UTF-8; None is null."""

SETTLE_S_MAX: Final = 5.0
"""How long the database may take to give up what somebody was interrupted in."""

_GOOD: Final = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})
_NUMBERS: Final = count()
"""No name is used twice: who was interrupted while preparing does not know whether the name is taken."""
_PLACE: Final = re.compile(b"%s")


def numbered(query: bytes) -> bytes:
    """A query with `%s` in it as the database itself wants it: with `$1`, `$2` and so on."""
    numbers = count(1)
    return _PLACE.sub(lambda _: b"$%d" % next(numbers), query)


def run(
    connection: Connection, statement: bytes, values: Sequence[Text], *, is_quick: bool = False
) -> list[tuple[Any, ...]]:
    """Run a statement, which is prepared if it is not yet. The rows that it gives.

    One that is quick may be waited for without going to sleep.
    """
    name = connection.prepared.get(statement) or _prepared(connection, statement)
    try:
        connection.pgconn.send_query_prepared(name, values, result_format=pq.Format.BINARY)
        if is_quick and connection.busy_wait is not None:
            connection.busy_wait.wait()
    except BaseException:
        _settle(connection)
        raise
    result = _result(connection)
    connection.loaders.set_pgresult(result)
    return connection.loaders.load_rows(0, result.ntuples, tuple)


def _prepared(connection: Connection, statement: bytes) -> bytes:
    name = b"headrace_%d" % next(_NUMBERS)
    connection.pgconn.send_prepare(name, statement)
    _result(connection)
    connection.prepared[statement] = name
    return name


def _settle(connection: Connection) -> None:
    """Have the database give up what it was asked for, or end it, so that who was interrupted can look at it.

    The driver does the same for who is interrupted while it waits itself.
    """
    if connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
        # Where that fails, the connection is not used again.
        with suppress(Error):
            connection.cancel_safe(timeout=SETTLE_S_MAX)
            connection.wait(generators.execute(connection.pgconn), timeout=SETTLE_S_MAX)


def _result(connection: Connection) -> pq.abc.PGresult:
    result: pq.abc.PGresult = connection.wait(generators.execute(connection.pgconn))[-1]
    if result.status not in _GOOD:
        raise errors.error_from_result(result)
    return result
