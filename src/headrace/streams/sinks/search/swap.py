"""Let a generation that a replay has built take the place of the one that counts (see sinks/swaps.py).

    INDEX/g-<id>/    what the replay writes; a generation of the same index, that readers don't see

One replacement of CURRENT does it. The staged generation's ledger goes on as that of the index, with a number
that no run has, so that all who still write are shut out.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.failpoints import hit
from headrace.search import layout
from headrace.streams.sinks.index_rows import index_columns
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.sinks.run_ledger import swapped
from headrace.streams.sinks.search import generation
from headrace.streams.sinks.search.generation import Generation, explained
from headrace.streams.stores import EmbeddedIndex
from headrace.streams.topic import METADATA_COLUMN


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSwap:
    """One swap of one index."""

    table: EmbeddedIndex
    pipeline: str
    swap_id: str

    @property
    def staging(self) -> EmbeddedIndex:
        """Another generation of the index."""
        return replace(self.table, path=self.table.path / layout.generation_name(self.swap_id))

    def check(self, schema: StructType) -> None:
        """Raise where an index can't have these columns. Those of the live one may be others."""
        fields = [field for field in schema.fields if field.name not in {DELETE_COLUMN, METADATA_COLUMN}]
        columns = index_columns(
            StructType(fields), key=self.table.key, text=self.table.text, pipeline=self.pipeline
        )
        generation.check_names(columns, pipeline=self.pipeline)
        generation.ensure(self.table.path, columns)
        with explained(self.table.path):
            self._planned.parent.mkdir(parents=True, exist_ok=True)
            layout.write_whole(self._planned, columns.to_json())

    def make(self) -> None:
        """Make the staging generation, for the columns that were checked."""
        generation.ensure(self.staging.path, generation.read_columns(self._planned))

    def is_made(self) -> bool:
        """Whether the staging generation is there and does not count yet."""
        path = self.staging.path
        return layout.place(path) is not None and layout.current(self.table.path) != path

    def commit(self, query_id: str) -> None:
        """Let it count, and remove all others."""
        index, staging = self.table.path, self.staging.path
        with explained(index), layout.locked(index):
            if layout.current(index) != staging:
                self._commit(query_id)
            for other in layout.others(index):
                shutil.rmtree(other, ignore_errors=True)
            shutil.rmtree(staging / layout.STAGING, ignore_errors=True)
            self._planned.unlink(missing_ok=True)

    @property
    def _planned(self) -> Path:
        """The columns that the staging generation is to have."""
        return self.table.path / layout.STAGING / f"{self.staging.path.name}.json"

    def _commit(self, query_id: str) -> None:
        if not self.is_made():
            raise PipelineError(
                f"the staged rows in {self.staging.path} are gone, so the search index {self.table.name} "
                "can't be swapped: begin the replay anew"
            )
        with ExitStack() as held:
            live, ledger = layout.place(self.table.path), None
            if live is not None:
                # So that no run begins meanwhile: its number would be the one that is taken here.
                changes = held.enter_context(Generation(path=live).writing())
                ledger = changes.ledger(self.pipeline)
            with Generation(path=self.staging.path).writing() as staged:
                staged.commit(self.pipeline, swapped(ledger, staged.ledger(self.pipeline), query_id))
            hit("replay.swap")
            layout.point(self.table.path, self.staging.path)
            hit("replay.swapped")
