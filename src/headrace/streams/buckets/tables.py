"""The tables of a bucket's state, as they are kept: each by its name, as a stream of Arrow's IPC format.

A table is read when it is first asked for. After a step:

    read, and returned as the same object      is kept as it is, and not written
    read, and returned as another              is written
    read, and not returned                     is removed
    not read, and returned                     is written
    not read, and not returned                 is kept as it is

So a logic that divides its state over many tables pays only for those that it looks at.

The schema's metadata says whose table it is, for those who look into a checkpoint, and with how many buckets
it was made: with another number, keys would be looked for where they are not.

    headrace.operator   the operator's name
    headrace.by         the columns of its keys, as JSON
    headrace.buckets    how many buckets it has

Pure: no Spark, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import Tables

OPERATOR_KEY: Final = b"headrace.operator"
BY_KEY: Final = b"headrace.by"
BUCKETS_KEY: Final = b"headrace.buckets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The operator whose tables they are."""

    operator: str
    by: tuple[str, ...]
    bucket_count: int

    @property
    def metadata(self) -> dict[bytes, str]:
        """As it is noted in tables."""
        return {
            OPERATOR_KEY: self.operator,
            BY_KEY: json.dumps(self.by),
            BUCKETS_KEY: str(self.bucket_count),
        }


def write_table(table: pa.Table, metadata: Mapping[bytes, bytes | str] | None = None) -> bytes:
    """A table as bytes. Without metadata, that of the table itself is kept."""
    if metadata is not None:
        table = table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def read_table(blob: bytes | bytearray | memoryview) -> pa.Table:
    """The table that was written; it is not copied."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()


class KeptTables(Mapping[str, pa.Table]):
    """The tables of a bucket, read when they are asked for. For one step."""

    def __init__(
        self,
        read: Callable[[str], bytes | bytearray | None],
        names: Callable[[], Iterable[str]],
        owner: Owner,
    ) -> None:
        self._read = read
        self._names = names
        self._owner = owner
        self._known: dict[str, pa.Table | None] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._known:
            blob = self._read(name)
            self._known[name] = None if blob is None else self._table(blob)
        table = self._known[name]
        if table is None:
            raise KeyError(name)
        return table

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names()))

    def __len__(self) -> int:
        return len(list(self._names()))

    def changes(self, after: Tables) -> dict[str, bytes | None]:
        """What is to be written, by name; None for what is to be removed."""
        told = self._owner.metadata
        # In one piece: a logic that adds one in each step would else look through ever more of them.
        written: dict[str, bytes | None] = {
            name: write_table(table.combine_chunks(), {**(table.schema.metadata or {}), **told})
            for name, table in after.items()
            if self._known.get(name) is not table
        }
        gone = (name for name, table in self._known.items() if table is not None and name not in after)
        return {**written, **dict.fromkeys(gone)}

    def _table(self, blob: bytes | bytearray) -> pa.Table:
        table = read_table(blob)
        made_with = int(table.schema.metadata[BUCKETS_KEY])
        if made_with != self._owner.bucket_count:
            raise PipelineError(
                f"the state of {self._owner.operator} was made with {made_with} buckets, not "
                f"{self._owner.bucket_count}: set buckets={made_with}, or give the pipeline another name to "
                "start anew"
            )
        return table
