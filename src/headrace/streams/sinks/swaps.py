"""Corrected rows take the place of a table's rows: they are staged beside it, and swapped in at once.

    staging   a table of its own with the columns of the live one; a pipeline that is replayed writes it
    commit    in one transaction: the live table loses its rows and gets the staged ones, and so does its
              ledger; a run that still writes the live table is shut out

The live table stays the same table, with its indexes, rights and views. Readers see the old rows, then the
new ones, at no time both or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.streams.stores import Table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class TableSwap(Protocol):
    """One swap of one table, known by its id."""

    @property
    def staging(self) -> Table:
        """What the replay writes."""

    def check(self, schema: StructType) -> None:
        """Raise where rows of this schema can't be swapped in; create the live table if it is missing."""

    def make(self) -> None:
        """Create the staging table, if it is missing."""

    def is_made(self) -> bool:
        """Whether the staging table is there: from `make` until `commit`."""

    def commit(self, query_id: str) -> None:
        """Swap, unless that is done. `query_id` is that of the query that wrote the staging table."""
