"""Rows put together to calls of the script that writes them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headrace.config import MIB

CALL_ROWS_MAX: Final = 500
"""Redis does nothing else while a script runs, so a call is kept short. Lua takes 8,000 arguments at most."""
CALL_BYTES_MAX: Final = MIB
FIELD_BYTES_MAX: Final = 64 * 1024
VALUE_BYTES_MAX: Final = 16 * MIB
"""Redis itself takes 512 MB, and everybody waits meanwhile."""

WRITE: Final = """
local found = redis.call('HMGET', KEYS[2], 'run', 'open_batch')
if found[1] == ARGV[1] and found[2] == ARGV[2] then
    local had_rows = redis.call('EXISTS', KEYS[1])
    local first = 4 + tonumber(ARGV[3])
    if first > 4 then
        redis.call('HDEL', KEYS[1], unpack(ARGV, 4, first - 1))
    end
    if first <= #ARGV then
        redis.call('HSET', KEYS[1], unpack(ARGV, first))
    end
    if redis.call('EXISTS', KEYS[1]) == 1 then
        redis.call('DEL', KEYS[3])
    elseif had_rows == 1 then
        redis.call('SET', KEYS[3], '')
    end
end
return found
"""
"""KEYS: cache, ledger, note. ARGV: run, batch, how many fields are removed, these, then fields with values.

The note is there if it was a pipeline that removed the last row (see state.py).
"""

Row = tuple[bytes, bytes | None]
"""Field and value; no value for one that is to go."""


def calls(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows, as many at once as one call takes."""
    call: list[Row] = []
    size_bytes = 0
    for row in rows:
        row_bytes = len(row[0]) + len(row[1] or b"")
        if call and (len(call) == CALL_ROWS_MAX or size_bytes + row_bytes > CALL_BYTES_MAX):
            yield call
            call, size_bytes = [], 0
        call.append(row)
        size_bytes += row_bytes
    if call:
        yield call


def arguments(run: int, batch_id: int, call: Iterable[Row]) -> list[bytes | int]:
    """What the script is called with."""
    removed: list[bytes] = []
    written: list[bytes] = []
    for field, value in call:
        if value is None:
            removed.append(field)
        else:
            written += (field, value)
    return [run, batch_id, len(removed), *removed, *written]


def refusal(row: Row) -> str | None:
    """Why a row can't be written; None if it can."""
    field, value = row
    if len(field) > FIELD_BYTES_MAX:
        return f"its key has {len(field):,} bytes, and a cache takes {FIELD_BYTES_MAX:,}: use a shorter key"
    if value is not None and len(value) > VALUE_BYTES_MAX:
        return (
            f"it has {len(value):,} bytes as JSON, and a cache takes {VALUE_BYTES_MAX:,}: leave columns out"
        )
    return None
