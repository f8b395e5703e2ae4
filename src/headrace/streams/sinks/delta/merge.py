"""Upsert a batch into a Delta table: staged files are merged into it by key, in one commit.

TABLE/_headrace/<pipeline>/<run>/    the batch's rows until they are merged; readers of Delta pass over it
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.transaction import CommitProperties

from headrace.streams.sinks.records import DELETE_COLUMN

STAGING: Final = "_headrace"


def staging_of(table: Path, pipeline: str) -> Path:
    """Where the rows of one pipeline wait, in a directory for each run."""
    return table / STAGING / pipeline


def merge(table: DeltaTable, properties: CommitProperties, files: Sequence[Path], key: Sequence[str]) -> None:
    """Let the files' rows take the place of those with the same key, or delete them."""
    rows = ds.dataset([str(file) for file in files], format="parquet").scanner().to_reader()
    columns = [name for name in rows.schema.names if name != DELETE_COLUMN]
    values = {_quoted(name): f"source.{_quoted(name)}" for name in columns}
    same = " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in key)
    merger = table.merge(
        rows, same, source_alias="source", target_alias="target", commit_properties=properties
    )
    if DELETE_COLUMN in rows.schema.names:
        deleted = f"source.{_quoted(DELETE_COLUMN)}"
        merger = merger.when_matched_delete(deleted)
        merger = merger.when_not_matched_insert(values, predicate=f"NOT {deleted}")
    else:
        merger = merger.when_not_matched_insert(values)
    merger.when_matched_update(values).execute()


def _quoted(name: str) -> str:
    """A name as DataFusion's SQL has it: in double quotes it keeps its case."""
    return '"' + name.replace('"', '""') + '"'
