"""Run a logic on Spark: pack rows for their buckets, step each bucket, unpack what the steps made.

    rows ─▶ pack (mapInArrow) ─▶ group by bucket ─▶ step (transformWithState) ─▶ unpack (mapInArrow)
            blobs for each       a few large        reads and writes the         the results as
            bucket and task      rows               bucket's tables              rows

Only packed rows go through Spark's row-wise parts, so the cost of a step does not depend on how many rows it
has. A bucket's state is a map of Spark's state store, from a table's name to the table as bytes.

Which bucket a key belongs to is Spark's `xxhash64` of the `by` columns, which is the same in each version and
takes every type that Spark can group by.

A batch DataFrame takes the same way, with one step for each bucket that has no state before it, and
`Arrivals.is_end`, unless it is to be computed only as far as a stream has come (see unended.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, DataType, IntegerType, MapType, StringType, StructField, StructType

from headrace.errors import PipelineError
from headrace.streams.buckets.fewer_tasks import in_fewer_tasks
from headrace.streams.buckets.logic import RESULTS, Arrivals, Logic, Step
from headrace.streams.buckets.packing import BUCKETS_MAX, arrivals, labels, pack, pack_progress, pieces_of
from headrace.streams.buckets.plan_column import operator_column
from headrace.streams.buckets.reports import OperatorReports, new_reports
from headrace.streams.buckets.sources import FLAT_PLACES, PLACE_FIELDS, has_places, with_places
from headrace.streams.buckets.tables import KeptTables, Owner, read_table, write_table
from headrace.streams.building import Noted, find_building
from headrace.streams.python_worker import keep_what_is_loaded
from headrace.streams.time_only import TIME_COLUMN, time_only_of
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.unended import is_unended

BUCKET_COUNT: Final = 8
"""How many buckets an operator has where nothing is said. Fixed by its first checkpoint."""
STATE_NAME: Final = "tables"
"""What Spark calls the state of an operator."""
PACKED_BYTES_MAX: Final = 16 * 2**20
"""Blobs are handed to Spark together up to this size; a larger one goes alone."""

Side = Callable[[str, int, int, pa.Table], None]
"""Takes what is no result, in the worker: the output's name, the batch id, the bucket, and the rows. Called
once for each output of a bucket that has rows; again, with the same, when a task is run again."""

Ends = Callable[[int], Mapping[str, int]]
"""Tells, in the worker, up to which offset of each source the micro-batch of this number reads."""

_BUCKET: Final = "_bucket"
_PACKED: Final = "bucket int, blob binary"
# Not as DDL, which each task of each batch would have Java parse.
_NAME: Final = StructType([StructField("name", StringType())])
_BLOB: Final = StructType([StructField("blob", BinaryType())])
_UNPACKED_ROWS_MAX: Final = 65_536


def run_logic(  # noqa: PLR0913 - each is a property of an operator, given by name
    rows: DataFrame,
    logic: Logic,
    *,
    by: Sequence[str],
    event_time: str | None,
    name: str,
    buckets: int = BUCKET_COUNT,
    declared: str | None = None,
    side: Side | None = None,
    everywhere: str | None = None,
    ends: Ends | None = None,
) -> DataFrame:
    """What the logic makes of the rows: its output `results`.

    `everywhere` names a boolean column: where it is true, the row comes to all buckets.
    `declared` names a column by which a source says that nothing older than its value will come. What the
    logic puts into other outputs goes to `side`; without it, such rows are an error. With `ends`, it is told
    up to where each micro-batch of a stream reads.
    """
    _check(rows, by=by, times=(event_time, declared), name=name, buckets=buckets)
    lean = _with_places(rows)
    given = arrow_schema(lean.schema)
    building = find_building()
    if building is not None:
        building.noted.append(Noted(name=name, rows=lean, logic=logic, by=tuple(by), event_time=event_time))
    outputs = logic.output_schemas(given)
    packer = Packer(schema=given, bucket_count=buckets, event_time=event_time, declared=declared)
    bucket = F.pmod(F.xxhash64(*by), F.lit(buckets)).cast("int")
    if everywhere is not None:
        every = F.sequence(F.lit(0), F.lit(buckets - 1))
        bucket = F.explode(F.when(F.col(everywhere), every).otherwise(F.array(bucket)))
    packed = in_fewer_tasks(_flat(lean)).select("*", bucket.alias(_BUCKET)).mapInArrow(packer.run, _PACKED)
    for beside in time_only_of(rows) if event_time is not None else ():
        packed = packed.union(_with_places(beside).mapInArrow(packer.run_time_only, _PACKED))
    reports = new_reports(name, rows) if rows.isStreaming else None
    owner = Owner(operator=name, by=tuple(by), bucket_count=buckets)
    stepper = Stepper(logic=logic, owner=owner, reports=reports, ends=ends)
    if rows.isStreaming:
        stepped = packed.groupBy("bucket").transformWithState(
            StepProcessor(stepper), _stepped(operator_column(name)), outputMode="update", timeMode="None"
        )
    else:
        step_once = _step_once(stepper, is_end=not is_unended())
        stepped = packed.groupBy("bucket").applyInArrow(step_once, _stepped("blob"))
    unpacker = Unpacker(schema=outputs[RESULTS], operator=name, side=side)
    return stepped.mapInArrow(unpacker.run, from_arrow_schema(outputs[RESULTS], prefer_timestamp_ntz=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Packer:
    """Packs a task's rows. Travels to the workers."""

    schema: pa.Schema
    bucket_count: int
    event_time: str | None
    declared: str | None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of the task become a few rows for each bucket; no rows become none."""
        keep_what_is_loaded("pack")
        filled = [with_places(batch) for batch in batches if batch.num_rows]
        if not filled:
            return
        rows = pa.Table.from_batches(filled)
        buckets = rows.column(_BUCKET).to_numpy().astype(np.int32, copy=False)
        blobs = pack(
            rows.select(self.schema.names).cast(self.schema),
            buckets,
            bucket_count=self.bucket_count,
            task=_task(),
            event_time=self.event_time,
            declared=self.declared,
        )
        yield from self._labelled(blobs)

    def run_time_only(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same of rows that only tell how far their sources are."""
        filled = [batch for batch in batches if batch.num_rows]
        if filled:
            yield from self._labelled(
                pack_progress(
                    pa.Table.from_batches(filled),
                    self.schema,
                    bucket_count=self.bucket_count,
                    task=_task(),
                    event_time=TIME_COLUMN,
                    declares=self.declared is not None,
                )
            )

    def _labelled(self, blobs: Iterator[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
        names = labels(self.bucket_count)
        held: list[tuple[int, bytes]] = []
        held_bytes = 0
        for bucket, blob in blobs:
            if held and held_bytes + len(blob) > PACKED_BYTES_MAX:
                yield _packed(held)
                held, held_bytes = [], 0
            held.append((names[bucket], blob))
            held_bytes += len(blob)
        yield _packed(held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepper:
    """Steps a bucket. Travels to the workers."""

    logic: Logic
    owner: Owner
    reports: OperatorReports | None = None
    ends: Ends | None = None

    def arrivals(self, blobs: Iterator[bytes]) -> Arrivals:
        """What a micro-batch of a stream brings to a bucket."""
        given = arrivals(blobs)
        return given if self.ends is None else replace(given, ends=self.ends(_batch_id()))

    def report(self, bucket: int, step: Step) -> None:
        """Tell the driver what was counted."""
        if self.reports is not None:
            self.reports.add(_batch_id(), bucket, step)


class StepProcessor(StatefulProcessor):
    """What Spark calls for each bucket of a micro-batch."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._tables: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        keep_what_is_loaded("step")
        self._tables = handle.getMapState(STATE_NAME, _NAME, _BLOB)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[Row]:
        """Step a bucket."""
        kept = KeptTables(self._read, self._names, self._stepper.owner)
        step = self._stepper.logic.step(kept, self._stepper.arrivals(row["blob"] for row in rows))
        for name, blob in kept.changes(step.state).items():
            if blob is None:
                self._tables.removeKey((name,))
            else:
                self._tables.updateValue((name,), (blob,))
        self._stepper.report(key[0], step)
        column = operator_column(self._stepper.owner.operator)
        for name, table in _pieces(step):
            yield Row(**{"bucket": key[0], "output": name, column: write_table(table)})

    def close(self) -> None:
        """Let go of the state. What the first steps have loaded stays, and need not be looked through."""
        self._tables = None
        keep_what_is_loaded(f"stepped {self._stepper.owner.operator}")

    def _read(self, name: str) -> bytes | bytearray | None:
        found = self._tables.getValue((name,))
        return None if found is None else found[0]

    def _names(self) -> list[str]:
        return [name for (name,) in self._tables.keys()]  # noqa: SIM118 - Spark's map is no mapping


def _step_once(stepper: Stepper, *, is_end: bool) -> Callable[[pa.Table], pa.Table]:
    """Steps a bucket once, in batch."""

    # A function of one parameter: Spark counts them, and would count `self`.
    def step_once(packed: pa.Table) -> pa.Table:
        blobs = packed.column("blob").to_pylist()
        step = stepper.logic.step({}, arrivals(blobs, is_end=is_end))
        made = list(_pieces(step))
        buckets = packed.column("bucket").to_pylist()[:1] * len(made)
        return pa.table(
            {
                "bucket": pa.array(buckets, pa.int32()),
                "output": pa.array([name for name, _ in made], pa.string()),
                "blob": pa.array([write_table(table) for _, table in made], pa.binary()),
            }
        )

    return step_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacker:
    """Makes rows of what steps made. Travels to the workers."""

    schema: pa.Schema
    operator: str
    side: Side | None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results as rows; what else there is goes to its side."""
        keep_what_is_loaded("unpack")
        for batch in batches:
            for bucket, output, blob in zip(*batch.columns, strict=True):
                table = read_table(blob.as_py())
                if output.as_py() == RESULTS:
                    yield from table.cast(self.schema).to_batches(max_chunksize=_UNPACKED_ROWS_MAX)
                elif self.side is None:
                    raise PipelineError(
                        f"{self.operator} made {len(table)} rows of {output}, and nothing takes them"
                    )
                else:
                    self.side(output.as_py(), _batch_id(), bucket.as_py(), table)


def _check(
    rows: DataFrame, *, by: Sequence[str], times: Sequence[str | None], name: str, buckets: int
) -> None:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise PipelineError(f"{name}: buckets is {buckets}; use 1 to {BUCKETS_MAX:,}")
    if not by:
        raise PipelineError(f"{name}: by is empty; name the columns that rows belong together by")
    if len(set(rows.columns)) < len(rows.columns):
        raise PipelineError(f"{name}: two columns have one name among {', '.join(rows.columns)}; rename one")
    if clash := {_BUCKET, *FLAT_PLACES.values()}.intersection(rows.columns):
        raise PipelineError(f"{name}: it makes the column {min(clash)} itself; rename yours")
    for column in by:
        if isinstance(_type_of(rows, column, name), MapType):
            raise PipelineError(f"{name}: {column} is a map, which Spark can't group by; take a value of it")
    for column in (each for each in times if each is not None):
        kind = _type_of(rows, column, name).typeName()
        if kind not in {"timestamp", "timestamp_ntz"}:
            raise PipelineError(f"{name}: {column} is {kind}; use a timestamp")


def _type_of(rows: DataFrame, column: str, name: str) -> DataType:
    if column not in rows.columns:
        raise PipelineError(f"{name}: there is no column {column!r} among {', '.join(rows.columns)}")
    return rows.schema[column].dataType


def _stepped(blob: str) -> StructType:
    """What steps make. In a stream, the column of blobs says of which operator, as nothing else does."""
    return StructType(
        [
            StructField("bucket", IntegerType()),
            StructField("output", StringType()),
            StructField(blob, BinaryType()),
        ]
    )


def _with_places(rows: DataFrame) -> DataFrame:
    """The rows with only that of `_kafka` which operators are given."""
    if not has_places(arrow_schema(rows.schema)):
        return rows
    place = F.struct(*(F.col(METADATA_COLUMN)[field].alias(field) for field in PLACE_FIELDS))
    return rows.withColumn(METADATA_COLUMN, place)


def _flat(rows: DataFrame) -> DataFrame:
    """The rows on their way to Python: Spark takes far longer to write a struct than the fields of it."""
    if not has_places(arrow_schema(rows.schema)):
        return rows
    places = {name: F.col(METADATA_COLUMN)[field] for field, name in FLAT_PLACES.items()}
    return rows.withColumns(places).drop(METADATA_COLUMN)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns as Arrow has them, without what Spark has noted of them, which is not the results'."""
    given = to_arrow_schema(schema, timezone="UTC")
    return pa.schema([field.with_metadata(None) for field in given])


def _packed(blobs: list[tuple[int, bytes]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "bucket": pa.array([bucket for bucket, _ in blobs], pa.int32()),
            "blob": pa.array([blob for _, blob in blobs], pa.binary()),
        }
    )


def _pieces(step: Step) -> Iterator[tuple[str, pa.Table]]:
    """The outputs that have rows. Those that are no results go to their side in one piece."""
    for name, table in sorted(step.outputs.items()):
        if name == RESULTS:
            stretches = pieces_of(table, 0, len(table)) if len(table) else ()
            yield from ((name, table.slice(start, length)) for start, length in stretches)
        elif len(table):
            yield name, table


def _task() -> int:
    context = TaskContext.get()
    assert context is not None, "only Spark runs tasks"
    return context.partitionId()


def _batch_id() -> int:
    """The micro-batch's; 0 in batch."""
    context = TaskContext.get()
    assert context is not None, "only Spark runs tasks"
    return int(context.getLocalProperty("streaming.sql.batchId") or 0)
