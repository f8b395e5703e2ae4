"""The tables of a bucket's state, as they are kept: each by its name, as a stream of Arrow's IPC format.

A table is read when it is first asked for. After a step:

    read, and returned as the same object      is kept as it is, and not written
    read, and returned as another              is written
    read, and not returned                     is removed
    not read, and returned                     is written
    not read, and not returned                 is kept as it is

So a logic that divides its state over many tables pays only for those that it looks at.

All but small tables are compressed, and written as base64. Spark hands each byte of a state to Python as a
letter of a text, and those beyond ASCII take it four times as long: so reading is as much faster, although a
third more is read. Checkpoints pay for it: Spark compresses what it keeps, too, and base64 is a third more.

The schema's metadata says whose table it is, for those who look into a checkpoint, and with how many buckets
it was made: with another number, keys would be looked for where they are not.

    headrace.operator   the operator's name
    headrace.by         the columns of its keys, as JSON
    headrace.buckets    how many buckets it has

Pure: no Spark, no I/O.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import Tables

OPERATOR_KEY: Final = b"headrace.operator"
BY_KEY: Final = b"headrace.by"
BUCKETS_KEY: Final = b"headrace.buckets"

SMALL_BYTES_MAX: Final = 4096
"""Up to which size a table of the state is kept as it is."""
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_AS_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
_BASE64_BEGINS: Final = b"/"
"""What the first byte of Arrow's format, 255, begins with as base64."""


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
    written: bytes = _stream_of(table, None).to_pybytes()
    return written


def write_kept(table: pa.Table, metadata: Mapping[bytes, bytes | str]) -> bytes:
    """A table as it is kept in the state."""
    if table.nbytes <= SMALL_BYTES_MAX:
        return write_table(table, metadata)
    return b2a_base64(_stream_of(table.replace_schema_metadata(metadata), _COMPRESSED), newline=False)


def read_table(blob: bytes | bytearray | memoryview) -> pa.Table:
    """The table that was written, by either of them; what is not compressed is not copied."""
    stream = a2b_base64(blob) if blob[:1] == _BASE64_BEGINS else blob
    return pa.ipc.open_stream(pa.py_buffer(stream), options=_AS_READ).read_all()


def read_kept(blob: bytes | bytearray, whose: str) -> pa.Table:
    """A table of the state. `whose` is said where it can't be read."""
    try:
        return read_table(blob)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise PipelineError(
            f"the state of {whose} can't be read: {error}. If a newer version has written it, run that one, "
            "or else give the pipeline another name to start anew"
        ) from error


def _stream_of(table: pa.Table, options: pa.ipc.IpcWriteOptions | None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


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
            name: write_kept(table.combine_chunks(), {**(table.schema.metadata or {}), **told})
            for name, table in after.items()
            if self._known.get(name) is not table
        }
        gone = (name for name, table in self._known.items() if table is not None and name not in after)
        return {**written, **dict.fromkeys(gone)}

    def _table(self, blob: bytes | bytearray) -> pa.Table:
        table = read_kept(blob, self._owner.operator)
        made_with = int(table.schema.metadata[BUCKETS_KEY])
        if made_with != self._owner.bucket_count:
            raise PipelineError(
                f"the state of {self._owner.operator} was made with {made_with} buckets, not "
                f"{self._owner.bucket_count}: set buckets={made_with}, or give the pipeline another name to "
                "start anew"
            )
        return table
