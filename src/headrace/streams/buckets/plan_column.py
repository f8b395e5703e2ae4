"""How an operator is known in Spark's plan, to which it is a function like others: by a column that it makes.

The name is in letters that no parser of Spark minds. It is not in the column's metadata, because Spark leaves
that out of what it writes of plans.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from typing import Final

_PREFIX: Final = "_operator_"


def operator_column(name: str) -> str:
    """The column by which the operator of this name is known."""
    return _PREFIX + name.encode().hex()


def operator_of(column: str) -> str | None:
    """The name of the operator that is known by the column; None where it is another column."""
    return bytes.fromhex(column.removeprefix(_PREFIX)).decode() if column.startswith(_PREFIX) else None
