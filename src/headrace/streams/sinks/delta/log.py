"""The log of a Delta table: what was committed, and by which batch.

A commit carries two application transactions beside its files:

    headrace.<pipeline>.<query id>   version = id of the batch
    headrace.<pipeline>              version = number of the run

Delta refuses a commit if another one with the same application was made since the table was read, so of two
that write the same batch, one gets through. The number of the run is one more than that of the run before. A
run takes it before its first batch, whether that has rows or not, by a commit without files: whoever finds
another number than his own from then on has been replaced.

The digest of the batch's input stands in the commit's metadata; see sinks/ledger.py for what it is good for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from headrace.errors import PipelineError, PipelineFailed, StoreUnavailable
from headrace.streams.sinks.delta.schema import misfits
from headrace.streams.sinks.ledger import NO_DIGEST, Batch, Entry, Verdict, decide, taken_over

COMMIT_ATTEMPTS_MAX: Final = 5
"""How often to begin again when others change the table at the same time."""
_METADATA: Final = "headrace"
_HISTORY_MAX: Final = 100
"""How many commits back to look for the digest of a batch, and for who has written last."""

T = TypeVar("T")

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

    def begin_run(self, batch: Batch) -> int:
        """Shut out all earlier runs before the first batch of a new one; return the number of the run."""

        def begin(table: DeltaTable) -> int:
            self._refuse_replaced(table, batch)
            # Who can't go on with this batch does not take over, either.
            self._is_written(table, batch)
            last_run = table.transaction_version(self._run)
            run = 0 if last_run is None else last_run + 1
            append(table, self._properties(batch.query_id, Transaction(self._run, run)), ())
            return run

        return self._attempted(begin)

    def is_written(self, batch: Batch, run: int) -> bool:
        """Whether the batch is in the table. Raises where the run was replaced, or the batch can't be."""
        return self._is_written_by(DeltaTable(self.path), batch, run)

    def commit(self, batch: Batch, run: int, write: Write) -> None:
        """Commit a batch, again where others were quicker and left it undone."""

        def attempt(table: DeltaTable) -> None:
            # The attempt before may have got through, though it was told otherwise.
            if not self._is_written_by(table, batch, run):
                transactions = Transaction(self._batches(batch), batch.batch_id), Transaction(self._run, run)
                told = {"batch_id": batch.batch_id, "digest": batch.digest}
                write(table, self._properties(batch.query_id, *transactions, **told))

        self._attempted(attempt)

    def _attempted(self, attempt: Callable[[DeltaTable], T]) -> T:
        """Do what ends in a commit to the table as it is now, again if others have changed it meanwhile."""
        for _ in range(COMMIT_ATTEMPTS_MAX):
            try:
                return attempt(DeltaTable(self.path))
            except CommitFailedError as error:
                failure = error
            except DeltaError as error:
                raise PipelineFailed(
                    f"pipeline {self.pipeline} can't write to the table {self.path}: {_words(error)}"
                ) from error
        raise StoreUnavailable(
            f"pipeline {self.pipeline} could not commit to the table {self.path} in {COMMIT_ATTEMPTS_MAX} "
            f"attempts, because others change it: {_words(failure)}"
        ) from failure

    def _refuse_replaced(self, table: DeltaTable, batch: Batch) -> None:
        """Raise if the query had the table and another has it now, as far back as the log reaches."""
        if not batch.has_claimed:
            return
        for commit in table.history(_HISTORY_MAX):
            told = commit.get(_METADATA) or {}
            if told.get("pipeline") == self.pipeline:
                if told["query_id"] != batch.query_id:
                    raise taken_over(self.pipeline)
                return

    def _is_written_by(self, table: DeltaTable, batch: Batch, run: int) -> bool:
        if table.transaction_version(self._run) != run:
            raise taken_over(self.pipeline)
        return self._is_written(table, batch)

    def _is_written(self, table: DeltaTable, batch: Batch) -> bool:
        return decide(self._entry(table, batch), batch, 1) is Verdict.SKIP

    def _entry(self, table: DeltaTable, batch: Batch) -> Entry | None:
        """What the log says of this batch's query."""
        version = table.transaction_version(self._batches(batch))
        if version is None:
            return None
        digest = self._digest(table, batch) if version == batch.batch_id else None
        if digest is None:
            # Of a batch that has had one input only, it was this one.
            digest = NO_DIGEST if batch.given_up else batch.digest
        return Entry(next_batch_id=version + 1, query_id=batch.query_id, task_count=1, digest=digest)

    @property
    def _run(self) -> str:
        return f"headrace.{self.pipeline}"

    def _batches(self, batch: Batch) -> str:
        return f"headrace.{self.pipeline}.{batch.query_id}"

    def _properties(self, query_id: str, *transactions: Transaction, **told: object) -> CommitProperties:
        return CommitProperties(
            app_transactions=list(transactions),
            custom_metadata={_METADATA: {**owner(self.pipeline, query_id)[_METADATA], **told}},
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
