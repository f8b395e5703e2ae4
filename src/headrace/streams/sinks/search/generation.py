"""A generation of a search index, as who writes it sees it: tantivy's files, and who may change them.

Tantivy lets one writer at a time have a generation, by a lock that the kernel takes from who dies. It is held
for a batch only, so that a newer run can take over from an older one that is still there. A commit has all
its files on disk when tantivy returns from it, but not the directory's entry of the file that makes them
count: so the directory is synced here.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tantivy

from headrace.errors import PipelineError, StorageError, StoreUnavailable
from headrace.search import layout
from headrace.search.fields import ALL_LEDGERS, KEY, LEDGER, PART, ROW, Columns, ledger_of
from headrace.streams.sinks.run_ledger import Ledger

LOCK_S_MAX: Final = 30.0
"""How long to wait for another writer: as a batch may take."""
LOCK_PAUSE_S: Final = 0.05
HEAP_BYTES: Final = 64 * 2**20
"""What tantivy may hold in memory before it writes files."""
_BUSY: Final = "lock"
"""What tantivy's error has in it where another has the writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation that is whole."""

    path: Path

    def columns(self) -> Columns:
        """The columns that it was made for."""
        return read_columns(self.path / layout.COLUMNS)

    def ledger(self, pipeline: str) -> Ledger | None:
        """What the pipeline has written, as of the last commit."""
        with explained(self.path):
            return _ledger(tantivy.Index.open(str(self.path)), pipeline)

    @contextmanager
    def writing(self, *, lock_s_max: float = LOCK_S_MAX) -> Iterator[Changes]:
        """Let nobody else change it. What is not committed within the block is given up."""
        with explained(self.path):
            index = tantivy.Index.open(str(self.path))
            writer = _writer(index, self.path, lock_s_max)
        try:
            yield Changes(index=index, writer=writer, path=self.path)
        except BaseException:
            writer.rollback()
            raise
        finally:
            # It waits for merges that were begun, and lets go of the lock.
            with explained(self.path):
                writer.wait_merging_threads()
        layout.sync_directory(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is about to be committed. What was added last is what counts."""

    index: tantivy.Index
    writer: tantivy.IndexWriter
    path: Path

    def ledger(self, pipeline: str) -> Ledger | None:
        """What the pipeline has written."""
        with explained(self.path):
            self.index.reload()
            return _ledger(self.index, pipeline)

    def document(self, values: dict[str, Any]) -> tantivy.Document:
        """A document; raises ValueError where tantivy takes none of the kind."""
        return tantivy.Document.from_dict(values, self.index.schema)

    def delete(self, key: str) -> None:
        """Delete the row with this key."""
        self.writer.delete_documents_by_term(KEY, key)

    def put(self, key: str, document: tantivy.Document) -> None:
        """Let the row take the place of the one with this key."""
        self.delete(key)
        self.writer.add_document(document)

    def commit(self, pipeline: str, ledger: Ledger) -> None:
        """Let all of it count, and the ledger with it."""
        with explained(self.path):
            name = ledger_of(pipeline)
            self.writer.delete_documents_by_term(LEDGER, name)
            self.writer.add_document(
                self.document({LEDGER: [ALL_LEDGERS, name], ROW: json.dumps(ledger.to_document()).encode()})
            )
            self.writer.commit()


def ensure(path: Path, columns: Columns) -> Generation:
    """The generation that counts in the index, or the generation that is asked for; made if it is missing."""
    found = layout.place(path)
    if found is not None:
        return Generation(path=found)
    with explained(path), layout.locked(path.parent if layout.is_generation(path) else path):
        found = layout.place(path)
        if found is not None:
            return Generation(path=found)
        if layout.is_generation(path):
            return _make(path, columns)
        made = _make(path / layout.FIRST, columns)
        layout.point(path, made.path)
        return made


def read_columns(path: Path) -> Columns:
    """What is kept in a file of columns."""
    try:
        return Columns.from_json(path.read_text())
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}, which tells the columns of an index, can't be read: {error}") from error


def refuse_changed(found: Columns, given: Columns, *, path: Path, pipeline: str) -> None:
    """Raise where an index was made for other columns."""
    reasons = found.differences(given)
    if reasons:
        raise PipelineError(
            f"pipeline {pipeline} can't write the search index {path}, which was made for other columns: "
            f"{'; '.join(reasons)}. `headrace replay FILE:{pipeline} --swap` builds it anew"
        )


def check_names(columns: Columns, *, pipeline: str) -> None:
    """Raise where a column's name is none that tantivy takes."""
    for column in columns.searched:
        if not tantivy.SchemaBuilder.is_valid_field_name(column.name):
            raise PipelineError(
                f"pipeline {pipeline} returns the column {column.name!r}, which can't be the name of a field "
                "of a search index: name it otherwise"
            )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say in our own words what tantivy or the disk says."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise StorageError(f"the search index {path} can't be written: {error}") from error


def _make(path: Path, columns: Columns) -> Generation:
    # What is there was never finished.
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    tantivy.Index(_schema(columns), str(path))
    layout.write_whole(path / layout.COLUMNS, columns.to_json())
    layout.sync_directory(path.parent)
    return Generation(path=path)


def _schema(columns: Columns) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field(KEY, stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field(ROW, stored=True)
    builder.add_unsigned_field(PART, indexed=True)
    builder.add_text_field(LEDGER, stored=True, tokenizer_name="raw", index_option="basic")
    for column in columns.searched:
        name = column.name
        match column.kind:
            case "words":
                builder.add_text_field(name)
            case "whole":
                builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
            case "integer":
                builder.add_integer_field(name, indexed=True, fast=True)
            case "float":
                builder.add_float_field(name, indexed=True, fast=True)
            case "boolean":
                builder.add_boolean_field(name, indexed=True, fast=True)
            case "moment":
                builder.add_date_field(name, indexed=True, fast=True)
            case "json":
                builder.add_json_field(name)
    return builder.build()


def _ledger(index: tantivy.Index, pipeline: str) -> Ledger | None:
    searcher = index.searcher()
    query = tantivy.Query.term_query(index.schema, LEDGER, ledger_of(pipeline))
    hits = searcher.search(query, 1, count=False).hits
    if not hits:
        return None
    kept = searcher.doc(hits[0][1]).get_first(ROW)
    return Ledger.from_document(json.loads(bytes(kept or b"")))


def _writer(index: tantivy.Index, path: Path, lock_s_max: float) -> tantivy.IndexWriter:
    deadline_s = time.monotonic() + lock_s_max
    while True:
        try:
            return index.writer(heap_size=HEAP_BYTES, num_threads=1)
        except ValueError as error:
            if _BUSY not in str(error).lower():
                raise
            if time.monotonic() > deadline_s:
                raise StoreUnavailable(
                    f"another process writes the search index {path} and has not let go of it within "
                    f"{lock_s_max:.0f} s: stop it"
                ) from error
        time.sleep(LOCK_PAUSE_S)
