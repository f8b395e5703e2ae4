"""Whether a place is written by what its rows are told apart by.

`hr.upserts` and `hr.history` note with their columns which of them tell results apart, and with `_delete`
that a result may go. Written by less than that, results would overwrite each other; by more, a row that has
changed would stay beside what it has become, and a delete, which has values for the key only, would delete
nothing. A column that has been computed anew has lost its note, so that nothing can be said about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.errors import PipelineError
from headrace.streams.plans.results import IDENTITY_KEY, REMOVED_KEY

_DELETE: Final = "_delete"


def check_identity(
    notes: Mapping[str, Mapping[str, Any]], key: Sequence[str], *, place: str, pipeline: str
) -> None:
    """Refuse a key of a topic or table that is not the one of the results. `notes` is told by column."""
    if not notes.get(_DELETE, {}).get(REMOVED_KEY):
        return
    told = {name: note[IDENTITY_KEY] for name, note in notes.items() if note.get(IDENTITY_KEY)}
    is_whole = bool(told) and set(told.values()) == {len(told)}
    if set(told) <= set(key) and (not is_whole or len(told) == len(key)):
        return
    raise PipelineError(
        f"pipeline {pipeline} returns results that are told apart by {', '.join(told)}, and writes {place} "
        f"by {', '.join(key) or 'no key'}: describe it with key={list(told)}, or say key=... to hr.upserts"
    )
