"""Small batches without a shuffle: tasks hand all records to the driver, each with the number of its share.

Usually records travel to the task that has their share, which is a stage of its own: two or three hundredths
of a second, whatever the size. Where the last batch was small enough for the driver to write it, and the
driver is on the machine of the tasks, the next one is expected to be small, too, and the tasks that have
computed the records hand them over themselves. A record is in the same share either way.

If a batch turns out to be large, its tasks put what they have into files, a file for each share, from which
the driver writes it, as much at a time as is in one record batch. It can't be left to other tasks then:
where Spark keeps state, nothing may be computed a second time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType
from pyspark.util import PythonEvalType

from headrace.streams.python_worker import keep_what_is_loaded

SHARE: Final = "_share"
HANDED: Final = StructType(
    [
        StructField("share", IntegerType()),
        StructField("row_count", LongType()),
        StructField("records", BinaryType()),
        StructField("path", StringType()),
    ]
)
"""What a task answers with: one row for each share that it has records of.

Not as DDL, which Java would have to parse for each batch."""

Piece = bytes | bytearray | Path
"""Record batches as a stream of Arrow's IPC format, or the file in which it is."""


class Handed(NamedTuple):
    """What a task has of a share."""

    share: int
    row_count: int
    records: bytes | bytearray | None
    path: str | None

    @property
    def piece(self) -> Piece:
        """The records, wherever they are."""
        if self.records is not None:
            return self.records
        assert self.path is not None, "records are here or in a file"
        return Path(self.path)


def is_small(handed: Sequence[Handed], bytes_max: int) -> bool:
    """Whether all that was handed over was not in files, and is no larger together than this."""
    if any(each.records is None for each in handed):
        return False
    return sum(len(each.records or b"") for each in handed) <= bytes_max


def share_number(spread_by: Column, share_count: int) -> Column:
    """In which share a record is: where `repartition(share_count, spread_by)` would send it to."""
    return F.pmod(F.hash(spread_by), F.lit(share_count)).cast("int").alias(SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """How each task hands its records over. Travels to the executors."""

    bytes_max: int
    """How much a task may hand over other than in files."""
    directory: str
    """Where such files are."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand over all records of the task: their columns, and the number of their share."""
        keep_what_is_loaded("hand over")
        handed = self.hand_over(batch for batch in batches if batch.num_rows)
        if handed:
            columns = zip(*handed, strict=True)
            types = (pa.int32(), pa.int64(), pa.binary(), pa.string())
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=Handed._fields)

    def hand_over(self, filled: Iterator[pa.RecordBatch]) -> list[Handed]:
        """What is answered."""
        held, size_bytes = [], 0
        for batch in filled:
            held.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > self.bytes_max:
                return self._in_files(chain(held, filled))
        if not held:
            return []
        return [
            Handed(share, len(records), to_bytes(records.to_batches()), None)
            for share, records in _by_share(pa.Table.from_batches(held))
        ]

    def _in_files(self, batches: Iterable[pa.RecordBatch]) -> list[Handed]:
        directory = Path(self.directory)
        directory.mkdir(parents=True, exist_ok=True)
        # A task that is tried again must not meet the files of the one before it.
        name = uuid.uuid4().hex
        writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        counts: dict[int, int] = {}
        with ExitStack() as files:
            for batch in batches:
                for share, records in _by_share(pa.Table.from_batches([batch])):
                    if share not in writers:
                        file = files.enter_context(pa.OSFile(str(directory / f"{name}-{share}"), "wb"))
                        writers[share] = files.enter_context(pa.ipc.new_stream(file, records.schema))
                    writers[share].write_table(records)
                    counts[share] = counts.get(share, 0) + len(records)
        return [
            Handed(share, count, None, str(directory / f"{name}-{share}")) for share, count in counts.items()
        ]


class Handing:
    """Has the tasks of one batch after the other hand their records over.

    What is the same for all batches is made once: the columns, and the function that tasks run. Each of the
    dozens of calls to Java that this takes is a third of a millisecond, in which nothing else happens.
    """

    def __init__(self, columns: Sequence[str], share: Column, hand_over: HandOver) -> None:
        """`share` gives the number of a record's share."""
        named = [F.col(name) for name in columns]
        function = pandas_udf(  # type: ignore[call-overload] # what `mapInArrow` does itself, for each call
            hand_over.run, returnType=HANDED, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        )
        self._columns = [*named, share]
        self._function: Column = function(*named, F.col(SHARE))
        self._java_columns: Any = None
        self.directory = Path(hand_over.directory)

    def collect(self, records: DataFrame) -> list[Handed]:
        """What the tasks of a batch answer."""
        # There is no public way to use what is made once: this is `records.select(...).mapInArrow(...)`.
        java, function = records._jdf, self._function._jc  # noqa: SLF001
        if self._java_columns is None:
            self._java_columns = records._jcols(*self._columns)  # type: ignore[operator] # noqa: SLF001
        handed = java.select(self._java_columns).mapInArrow(function, False, None)
        return [Handed(*row) for row in DataFrame(handed, records.sparkSession).collect()]


def read_pieces(pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """The record batches of a share, as they were handed over."""
    for piece in pieces:
        opened = pa.OSFile(str(piece)) if isinstance(piece, Path) else pa.BufferReader(piece)
        with opened, pa.ipc.open_stream(opened) as stream:
            yield from stream


def to_bytes(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Record batches, at least one, as a stream of Arrow's IPC format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _by_share(records: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The records of each share, in the order in which they are there, without its number."""
    shares = records.column(SHARE)
    records = records.drop_columns([SHARE])
    for share in pc.unique(shares).to_pylist():
        yield share, records.filter(pc.equal(shares, share))
