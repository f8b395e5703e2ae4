"""The state that a user's function declares: fields with types and defaults.

A table of state that older code has written is read by what is declared now:

    a field that is new             has its default
    a field that is gone            is refused, because what it held would be lost
    a field of another type         is refused, because what it holds means something else
    keys of other columns or types  are refused, because none would be found
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headrace.errors import PipelineError

KEYS: Final = "keys"
"""The table that a user's state is kept in."""
TIME: Final = "time"
"""The table that says how far event time has come."""
RESERVED_PREFIX: Final = "_"
"""What no column of a user's state begins with."""
_MUTABLE: Final = (list, dict, set, bytearray)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """What is kept by key."""

    operator: str
    """Its name, for errors."""
    keys: pa.Schema
    """The columns of a key."""
    kept: pa.Schema
    """The fields of its state."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """By field; None for those that are not named."""
    internal: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Columns that are not the user's, null at first; their names begin with an underscore."""

    def __post_init__(self) -> None:
        for name in self.kept.names:
            if name.startswith(RESERVED_PREFIX):
                raise PipelineError(f"{self.operator}: the state's field {name!r} begins with _; rename it")
            if name in self.keys.names:
                raise PipelineError(
                    f"{self.operator}: {name!r} is a key and a field of the state; rename one"
                )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table that is kept."""
        internal = (pa.field(name, kind) for name, kind in self.internal.items())
        return pa.schema([*self.keys, *self.kept, *internal])

    def fresh(self) -> dict[str, Any]:
        """The state of a key that is new."""
        return {name: snapshot(self.defaults.get(name)) for name in self.kept.names}

    def read(self, table: pa.Table | None) -> pa.Table:
        """The kept table, by what is declared now; the same object where nothing has changed."""
        if table is None:
            return self.schema.empty_table()
        if table.schema.equals(self.schema):
            return table
        self._refuse_changes(table.schema)
        columns = [
            table.column(name) if name in table.column_names else self._filled(name, len(table))
            for name in self.schema.names
        ]
        return pa.table(columns, schema=self.schema)

    def _filled(self, name: str, count: int) -> pa.Array:
        kind = self.schema.field(name).type
        return pa.array([self.defaults.get(name)] * count, kind)

    def _refuse_changes(self, found: pa.Schema) -> None:
        advice = "give the pipeline another name to start anew"
        user = [name for name in found.names if not name.startswith(RESERVED_PREFIX)]
        for name in (*self.keys.names, *user):
            if name in self.keys.names and name not in user:
                raise PipelineError(
                    f"{self.operator}: its state is kept by other columns than {', '.join(self.keys.names)}: "
                    f"restore them, or {advice}"
                )
            if name not in self.schema.names:
                raise PipelineError(
                    f"{self.operator}: its state has a field {name!r} that is no longer declared, and what "
                    f"it holds would be lost: declare it, or {advice}"
                )
            old, new = found.field(name).type, self.schema.field(name).type
            if old != new:
                raise PipelineError(
                    f"{self.operator}: {name!r} is kept as {old}, and declared as {new}: restore the type, "
                    f"use another name for the new one, or {advice}"
                )


def column_of(values: Sequence[Any], kind: pa.DataType, told: str) -> pa.Array:
    """Values as a column; `told` says in errors what they are."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        for value in values:
            try:
                pa.array([value], kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
                raise PipelineError(f"{told} is {value!r}, which is no {kind}") from error
        raise


def snapshot(value: Any) -> Any:
    """The value as it is now, whatever is done to it later."""
    return deepcopy(value) if isinstance(value, _MUTABLE) else value
