"""Write batches of a pipeline's rows to a search index."""

from __future__ import annotations

from pyspark.sql import DataFrame

from headrace.search import layout
from headrace.search.fields import Columns
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.index_rows import as_documents, index_columns
from headrace.streams.sinks.refused import refused_files
from headrace.streams.sinks.search.apply import IndexApplier
from headrace.streams.sinks.staged import StagedWriter
from headrace.streams.sinks.table_rows import table_rows
from headrace.streams.stores import EmbeddedIndex


class IndexWriter:
    """Makes documents of rows, and lets them be staged and applied."""

    def __init__(self, table: EmbeddedIndex, context: WriteContext) -> None:
        self._table = table
        self._context = context
        self._columns: Columns | None = None
        self._staged: StagedWriter | None = None

    def write(self, rows: DataFrame, batch_id: int) -> int:
        """Write the rows, unless they were written before; return how many were written now."""
        table, pipeline = self._table, self._context.pipeline
        rows = table_rows(rows, table, pipeline=pipeline)
        if self._columns is None or self._staged is None:
            self._columns = index_columns(rows.schema, key=table.key, text=table.text, pipeline=pipeline)
            self._staged = self._open(self._columns)
        return self._staged.write(as_documents(rows, self._columns), batch_id)

    def close(self) -> None:
        """Let go of the index."""
        if self._staged is not None:
            self._staged.close()

    def _open(self, columns: Columns) -> StagedWriter:
        table, context = self._table, self._context
        refused = refused_files(context.refused or context.checkpoint)
        applier = IndexApplier(table.path, columns, context.pipeline, refused)
        staging = table.path / layout.STAGING / context.pipeline
        return StagedWriter(table, context, applier, staging)
