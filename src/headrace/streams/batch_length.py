"""How long the batches of queries that run together last in real-time mode. No I/O."""

from __future__ import annotations

from typing import Final

_APART: Final = 0.1
"""By how much of a batch those of one query are longer than those of the query before."""


def batch_length(batch_s: int, number: int) -> str:
    """Of the query of this number, from 0, as Spark is told.

    Where a batch ends, results wait until the next one is planned. Were all of the same length, they would
    all end at the same time, and be planned by the same few cores.
    """
    return f"{round(batch_s * 1_000 * (1 + _APART * number))} milliseconds"
