"""How long the batches of queries that run together last in real-time mode. No I/O."""

from __future__ import annotations

from typing import Final

_APART: Final = 0.1
"""By how much of a batch those of one query are longer than those of the query before."""
_PATIENT_TIMES: Final = 2
"""How many times as long the batches are of queries for whose results nobody waits."""


def batch_length(batch_s: int, number: int, *, is_patient: bool = False) -> str:
    """Of the query of this number, from 0, as Spark is told.

    Where a batch ends, results wait until the next one is planned. Were all of the same length, they would
    all end at the same time, and be planned by the same few cores. And so that others are disturbed less
    often by queries that can wait, these have longer ones.
    """
    times = (_PATIENT_TIMES if is_patient else 1) * (1 + _APART * number)
    return f"{round(batch_s * 1_000 * times)} milliseconds"
