"""Swap the files of a Delta table for staged ones, in one commit (see sinks/swaps.py).

    TABLE/_headrace/swap~<id>/    the staging table; Delta and its readers pass over it

The staged files get a second name beside the live ones, and one commit removes these from the table and adds
those. It carries three application transactions: those of a batch (see log.py), by which the pipeline goes on
and an earlier run is shut out, and one of the swap, by which it is known to be done. Files that were given a
name and not committed hold no rows of the table; a full vacuum removes them.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql.types import StructType

from headrace.errors import PipelineError, PipelineFailed, StorageError, StoreUnavailable
from headrace.failpoints import hit
from headrace.streams.sinks.delta.log import COMMIT_ATTEMPTS_MAX, TableLog, owner
from headrace.streams.sinks.delta.merge import STAGING
from headrace.streams.sinks.delta.schema import arrow_schema
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.table import DeltaTable as Target
from headrace.streams.topic import METADATA_COLUMN


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSwap:
    """One swap of one table."""

    table: Target
    pipeline: str
    swap_id: str

    @property
    def staging(self) -> Target:
        """Within the table's directory, so that its files can get a second name. No pipeline has a `~`."""
        return replace(self.table, path=self.table.path / STAGING / f"swap~{self.swap_id}")

    def check(self, schema: StructType) -> None:
        """Raise where rows don't fit."""
        columns = [field for field in schema.fields if field.name not in {DELETE_COLUMN, METADATA_COLUMN}]
        log = TableLog(path=self.table.path, pipeline=self.pipeline)
        log.ensure_table(arrow_schema(StructType(columns), pipeline=self.pipeline))

    def make(self) -> None:
        """Create the staging table, with the columns of the live one."""
        self.staging.path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(self.staging.path, DeltaTable(self.table.path).schema(), mode="ignore")

    def is_made(self) -> bool:
        """Whether the staging table is there."""
        return (self.staging.path / "_delta_log").is_dir()

    def commit(self, query_id: str) -> None:
        """Swap, and remove the staging table."""
        for _ in range(COMMIT_ATTEMPTS_MAX):
            live = DeltaTable(self.table.path)
            try:
                if live.transaction_version(self._mark) is None:
                    self._commit(live, query_id)
            except CommitFailedError as error:
                failure = error
            except DeltaError as error:
                raise PipelineFailed(f"the table {self.table.name} can't be swapped: {error}") from error
            else:
                shutil.rmtree(self.staging.path, ignore_errors=True)
                return
        raise StoreUnavailable(
            f"the table {self.table.name} could not be swapped in {COMMIT_ATTEMPTS_MAX} attempts, because "
            f"others change it: {failure}"
        ) from failure

    @property
    def _mark(self) -> str:
        return f"headrace.swap.{self.swap_id}"

    def _commit(self, live: DeltaTable, query_id: str) -> None:
        if not self.is_made():
            raise PipelineError(
                f"the staged rows in {self.staging.path} are gone, so the table {self.table.name} can't be "
                "swapped: begin the replay anew"
            )
        staged = DeltaTable(self.staging.path)
        run, batches = f"headrace.{self.pipeline}", f"headrace.{self.pipeline}.{query_id}"
        last_run, last_batch = live.transaction_version(run), staged.transaction_version(batches)
        transactions = [
            Transaction(self._mark, 0),
            Transaction(run, 0 if last_run is None else last_run + 1),
        ]
        if last_batch is not None:
            transactions.append(Transaction(batches, last_batch))
        files: list[AddAction | RemoveAction] = [
            self._named(file) for file in pa.table(staged.get_add_actions()).to_pylist()
        ]
        hit("replay.swap")
        live.create_write_transaction(
            files,
            "overwrite",
            live.schema(),
            commit_properties=CommitProperties(
                app_transactions=transactions, custom_metadata=owner(self.pipeline, query_id)
            ),
        )
        hit("replay.swapped")

    def _named(self, file: dict[str, object]) -> AddAction:
        """Give a staged file a name beside the live ones."""
        name = str(file["path"])
        source, target = self.staging.path / name, self.table.path / Path(name).name
        try:
            if not target.exists():
                _link(source, target)
        except OSError as error:
            raise StorageError(f"the table {self.table.name} can't be swapped: {error}") from error
        return AddAction(
            path=target.name,
            size=target.stat().st_size,
            partition_values={},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=dumps({"numRecords": file["num_records"]}) if file.get("num_records") is not None else "{}",
        )


def _link(source: Path, target: Path) -> None:
    """A second name for a file; a copy where the file system knows none."""
    try:
        os.link(source, target)
    except OSError:
        _copy(source, target)


def _copy(source: Path, target: Path) -> None:
    copy = target.with_name(f".{target.name}~")
    shutil.copyfile(source, copy)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    copy.rename(target)
