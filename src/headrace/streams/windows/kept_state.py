"""Whether a state that an earlier version of a pipeline has kept can be gone on with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headrace.errors import PipelineError

_ADVICE: Final = "take the change back, or give the pipeline another name, so that it starts anew"


def check_types(kept: pa.Table, schema: pa.Schema) -> None:
    """Refuse columns that have another type now. One that is new gets its default."""
    for field in schema:
        if field.name in kept.schema.names and kept.schema.field(field.name).type != field.type:
            was = kept.schema.field(field.name).type
            raise PipelineError(
                f"the state that is kept has {field.name!r} as {was}, which is {field.type} now: {_ADVICE}"
            )


def check_keys(kept: pa.Table, by: Sequence[str], added: Sequence[str] = ()) -> None:
    """Refuse other columns of the key than those that the state was kept by. `added` are not of the key."""
    before = [name for name in kept.schema.names if name not in added]
    if before != list(by):
        were, now = (", ".join(names) or "nothing" for names in (before, by))
        raise PipelineError(f"the windows were kept by {were}, and are by {now} now: {_ADVICE}")


def read_kept(kept: pa.Table | None, schema: pa.Schema, by: Sequence[str]) -> pa.Table:
    """A table of state whose columns are those of the key, and then others; empty at first."""
    if kept is None:
        return schema.empty_table()
    names = kept.schema.names
    check_keys(kept, by, names[names.index(schema.names[len(by)]) :])
    check_types(kept, schema)
    return kept
