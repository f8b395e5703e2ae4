"""The log of a Delta table: what was committed, and by which batch.

A commit carries two application transactions beside its files:

    headrace.<pipeline>.<query id>   version = id of the batch
    headrace.<pipeline>              version = number of the run

Delta refuses a commit if another one with the same application was made since the table was read, so of two
that write the same batch, one gets through. The number of the run is one more than that of the run before:
whoever finds another one than his own has been replaced.

The digest of the batch's input stands in the commit's metadata; see sinks/ledger.py for what it is good for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from headrace.errors import PipelineError, PipelineFailed, StoreUnavailable
from headrace.streams.sinks.delta.schema import misfits
from headrace.streams.sinks.ledger import Batch, Entry, taken_over

COMMIT_ATTEMPTS_MAX: Final = 5
"""How often to begin again when others change the table at the same time."""
_METADATA: Final = "headrace"
_HISTORY_MAX: Final = 100
"""How many commits back to look for the digest of a batch, and for who has written last."""

Write = Callable[[DeltaTable, CommitProperties], None]
"""Commit something to a table that was just read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLog:
    """The log of one table, for one pipeline."""

    path: Path
    pipeline: str

    def ensure_table(self, schema: pa.Schema) -> pa.Schema:
        """Create the table if it is missing, or raise where the rows don't fit; return the table's schema."""
        try:
            table = DeltaTable(self.path)
        except TableNotFoundError:
            DeltaTable.create(self.path, schema, mode="ignore")
            table = DeltaTable(self.path)
        found = pa.schema(table.schema().to_arrow())
        reasons = misfits(schema, found)
        if table.metadata().partition_columns:
            reasons.append("it is partitioned, and rows are written to tables without partitions only")
        if reasons:
            raise PipelineError(
                f"pipeline {self.pipeline} can't write the table {self.path}: {'; '.join(reasons)}. Change "
                "the table or what the pipeline returns, or write another table"
            )
        return found

    def entry(self, batch: Batch) -> Entry | None:
        """What the log says of this batch's query."""
        table = DeltaTable(self.path)
        version = table.transaction_version(self._batches(batch))
        if version is None:
            return None
        digest = self._digest(table, batch) if version == batch.batch_id else None
        return Entry(
            next_batch_id=version + 1,
            query_id=batch.query_id,
            task_count=1,
            digest=batch.digest if digest is None else digest,
        )

    def refuse_replaced(self, batch: Batch) -> None:
        """Raise if another query has written since for the pipeline, as far back as the log reaches."""
        for commit in DeltaTable(self.path).history(_HISTORY_MAX):
            told = commit.get(_METADATA) or {}
            if told.get("pipeline") == self.pipeline:
                if told["query_id"] != batch.query_id:
                    raise taken_over(self.pipeline)
                return

    def commit(self, batch: Batch, run: int | None, write: Write) -> int:
        """Commit a batch, again where others were quicker and left it undone; return the number of the run.

        A run has no number before its first commit.
        """
        for _ in range(COMMIT_ATTEMPTS_MAX):
            table = DeltaTable(self.path)
            last_run = table.transaction_version(self._run)
            written = table.transaction_version(self._batches(batch))
            if written is not None and written >= batch.batch_id:
                # The attempt before got through, though it was told otherwise; or a successor was quicker.
                return last_run or 0
            if run is not None and last_run != run:
                raise taken_over(self.pipeline)
            number = (-1 if last_run is None else last_run) + 1 if run is None else run
            try:
                write(table, self._properties(batch, number))
            except CommitFailedError as error:
                failure = error
            except DeltaError as error:
                raise PipelineFailed(
                    f"pipeline {self.pipeline} can't write to the table {self.path}: {_words(error)}"
                ) from error
            else:
                return number
        raise StoreUnavailable(
            f"pipeline {self.pipeline} could not commit to the table {self.path} in {COMMIT_ATTEMPTS_MAX} "
            f"attempts, because others change it: {_words(failure)}"
        ) from failure

    @property
    def _run(self) -> str:
        return f"headrace.{self.pipeline}"

    def _batches(self, batch: Batch) -> str:
        return f"headrace.{self.pipeline}.{batch.query_id}"

    def _properties(self, batch: Batch, run: int) -> CommitProperties:
        return CommitProperties(
            app_transactions=[
                Transaction(self._batches(batch), batch.batch_id),
                Transaction(self._run, run),
            ],
            custom_metadata={
                _METADATA: {
                    **owner(self.pipeline, batch.query_id)[_METADATA],
                    "batch_id": batch.batch_id,
                    "digest": batch.digest,
                }
            },
        )

    def _digest(self, table: DeltaTable, batch: Batch) -> str | None:
        """That of the batch as it was committed; None where the log does not reach so far back."""
        for commit in table.history(_HISTORY_MAX):
            told = commit.get(_METADATA) or {}
            if told.get("query_id") == batch.query_id and told.get("batch_id") == batch.batch_id:
                return str(told["digest"])
        return None


def owner(pipeline: str, query_id: str) -> dict[str, dict[str, str]]:
    """What a commit's metadata says of who made it."""
    return {_METADATA: {"pipeline": pipeline, "query_id": query_id}}


def append(table: DeltaTable, properties: CommitProperties, files: Sequence[AddAction]) -> None:
    """Add files to the table, in one commit."""
    table.create_write_transaction(list(files), "append", table.schema(), commit_properties=properties)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())
