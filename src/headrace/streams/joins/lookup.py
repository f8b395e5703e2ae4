"""Events of a stream, each with the row of a table that has its key: as it is now, or as it was.

In each micro-batch, the table's changes are taken in first, and then its events are joined:

- `latest`: with the row as it is after these changes.
- `as_of`: with the version that counted at the event's time (see versions.py). With `wait`, an event is
  joined when the table's changes have come past its time, or when the stream's watermark is `wait` past it.

1. The table must be whole before the first event is joined. `table_ends` says where its topics ended when the
   pipeline was first started; until the micro-batches have come as far, events are held.
2. An event whose key has no row may wait for one, until the stream's watermark is so far past its time. It is
   joined as soon as there is a row, or version, for it.
3. One that has none in the end is given with nulls, dropped, or put out as `missing`. One that has null in
   what it is joined on never has a row, and does not wait.
4. With `as_of`, an event more than `keep` behind the watermark before its micro-batch is late: the version
   that it needs may be forgotten. With `latest` none is late, and one that has no time does not wait.

The columns of the input are those of sides.py, where events are the left and changes the right. Changes have

| column | |
|---|---|
| `_kind` | see changelog/current.py; only where they are versions |
| `_weight` | only where they are a changelog: 1 for a row that comes, and -1 for one that goes |

Events that are held are counted as `held` when that begins, and as `released` when it ends.

State: the runs `table` (versions.py), `held` and `waiting` (events, see waiting.py), `watermark.left` and
`watermark.right` as they are tracked, and `begun`, which is there once the table is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.joins.asked import (
    NO_KEY,
    NO_ROW,
    AsOf,
    LookupHow,
    Missing,
    Version,
    final,
    wait_us_of,
)
from headrace.streams.joins.changes_in import ChangesIn
from headrace.streams.joins.lookup_time import LookupTime, track_lookup
from headrace.streams.joins.probe import has_key
from headrace.streams.joins.runs import Pages, RunRows
from headrace.streams.joins.sides import HASH, IS_RIGHT, TIME
from headrace.streams.joins.versions import VersionedTable
from headrace.streams.joins.waiting import WaitingEvents
from headrace.streams.time.bounds import BEGINNING_US, END_US
from headrace.streams.time.policies import Policy
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.exact import column_type, in_one_piece
from headrace.streams.windows.late import Drop, LatePolicy, SideOutput, drop
from headrace.streams.windows.results import LateRows, Layout, time_type, times_us, watermark_gauge
from headrace.streams.windows.runs import Flags, stacked

MISSING: Final = "missing"
"""The output of events that have no row in the table."""
REASON_COLUMN: Final = "reason"
BEGUN: Final = "begun"
NO_TIME_US: Final = BEGINNING_US
"""The time of an event that has none, and none is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Steps the join of a stream with a table."""

    by: tuple[str, ...]
    left: tuple[str, ...]
    """The columns of events that are given, without those of the key."""
    right: tuple[str, ...]
    """Those of the table."""
    version: Version
    how: LookupHow = "inner"
    missing: Missing | None = None
    stream_watermark: Policy | None = None
    """How long the stream waits for late events; None where nothing depends on it."""
    late: LatePolicy = drop
    keeps_places: bool = False
    """Whether events keep where they came from."""
    table_ends: Mapping[str, int] = field(default_factory=dict)
    """By source, such as `products-0`: how far it must be read before the first event is joined."""

    @property
    def event_columns(self) -> tuple[str, ...]:
        """What is kept of an event that waits, and given."""
        return (*self.by, *self.left, *((METADATA_COLUMN,) if self.keeps_places else ()))

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        """Results, events without a row, and late ones."""
        event = [pa.field(name, column_type(rows, name)) for name in (*self.by, *self.left)]
        place = [pa.field(name, column_type(rows, name)) for name in self.event_columns[len(event) :]]
        table = [pa.field(name, column_type(rows, name)) for name in self.right]
        return {
            RESULTS: pa.schema([*event, *place, *table]),
            MISSING: pa.schema([*event, pa.field(REASON_COLUMN, pa.string())]),
            LATE: self._layout(rows).late,
        }

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Step one bucket."""
        time = track_lookup(self.stream_watermark, self.version, state, arrivals)
        rows = arrivals.rows.combine_chunks()
        is_right = np.asarray(in_one_piece(rows[IS_RIGHT]), dtype=bool)
        pages = Pages(state)
        joining = _Joining(self, rows.schema, pages, time)
        joining.begin(arrivals)
        joining.change(rows.filter(pa.array(is_right)))
        events = rows.filter(pa.array(~is_right))
        late = self._late(events, time)
        joining.take(events, ~late.is_late & late.has_time)
        outputs = joining.run()
        return Step(
            state={**time.tables, **pages.tables},
            outputs={**outputs, **late.outputs(events, self._layout(rows.schema), self.late)},
            counts={**late.counts(self.late), **joining.counts},
            gauges=watermark_gauge(time.after_us),
            time_report=time.report,
        )

    def _layout(self, rows: pa.Schema) -> Layout:
        own = pa.schema([pa.field(name, column_type(rows, name)) for name in (*self.by, *self.left)])
        return Layout(rows=own, by=self.by, time=time_type(rows, TIME), aggregates=())

    def _late(self, events: pa.Table, time: LookupTime) -> LateRows:
        at_us, has_time = times_us(events, TIME)
        keep_us = self.version.keep_us if isinstance(self.version, AsOf) else END_US
        if not isinstance(self.version, AsOf):
            has_time = np.ones(len(at_us), dtype=bool)
        return LateRows(
            is_late=has_time & (at_us < time.before_us - keep_us),
            has_time=has_time,
            start_us=at_us,
            end_us=at_us + (keep_us if keep_us < END_US else 0),
            watermark_us=time.before_us,
        )


@dataclass(slots=True)
class _Joining:
    """One step of a bucket."""

    logic: Lookup
    schema: pa.Schema
    pages: Pages
    time: LookupTime
    is_whole: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    table: VersionedTable = field(init=False)
    held: WaitingEvents = field(init=False)
    waiting: WaitingEvents = field(init=False)
    changes: ChangesIn = field(init=False)
    new: RunRows = field(init=False)
    results: list[pa.Table] = field(default_factory=list)
    missing: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        events = pa.schema([self.schema.field(name) for name in self.logic.event_columns])
        rows = pa.schema(
            [pa.field(name, self.schema.field(name).type) for name in (*self.logic.by, *self.logic.right)]
        )
        is_timed = isinstance(self.logic.version, AsOf)
        self.table = VersionedTable(self.pages, self.logic.by, rows, keeps_times=is_timed)
        self.held = WaitingEvents(self.pages, "held", events)
        self.waiting = WaitingEvents(self.pages, "waiting", events)
        self.changes = ChangesIn(table=self.table, by=self.logic.by, columns=tuple(rows.names))

    def begin(self, arrivals: Arrivals) -> None:
        """Note whether the table is whole."""
        begun = self.pages.get(BEGUN)
        ends = arrivals.ends
        self.is_whole = (
            begun is not None
            or ends is None
            or all(ends.get(source, 0) >= end for source, end in self.logic.table_ends.items())
        )
        if self.is_whole and begun is None:
            self.pages.put(BEGUN, pa.table({"is_begun": [True]}))

    def change(self, rows: pa.Table) -> None:
        """Take the table's changes in."""
        self.changes.take(rows)
        self._count("unavailable", self.changes.unknown_count)
        self._count("unmatched", self.changes.unmatched_count)

    def take(self, rows: pa.Table, is_taken: Flags) -> None:
        """Take the events in; those that have no key have no row."""
        names = list(self.logic.event_columns)
        keyed = has_key(rows, self.logic.by)
        self._lack(rows.filter(pa.array(is_taken & ~keyed)).select(names), NO_KEY)
        own = np.flatnonzero(is_taken & keyed)
        at_us, has_time = times_us(rows, TIME)
        at_us = np.where(has_time, at_us, NO_TIME_US)
        self.new = RunRows(
            rows=rows.select(names).take(pa.array(own)),
            hashes=np.asarray(in_one_piece(rows[HASH]), dtype=np.int64)[own],
            times_us=at_us[own],
            marks=np.zeros(len(own), dtype=bool),
        )

    def run(self) -> dict[str, pa.Table]:
        """The outputs."""
        ready_us = self.time.ready_us if self.is_whole else -END_US
        self._try_again()
        for events in self.held.take_before(ready_us):
            self._count("released", len(events))
            self._join(events)
        is_ready = self.new.times_us < ready_us
        self._join(self.new.take(np.flatnonzero(is_ready)))
        self.held.add(self.new.take(np.flatnonzero(~is_ready)))
        self._count("held", int(np.count_nonzero(~is_ready)))
        self.held.finish()
        self.waiting.finish()
        self.table.tidy(min(self.time.horizon_us, self.held.oldest_us, self.waiting.oldest_us))
        schemas = self.logic.output_schemas(self.schema)
        outputs = {RESULTS: self.results, MISSING: self.missing}
        return {name: stacked([schemas[name].empty_table(), *tables]) for name, tables in outputs.items()}

    def _try_again(self) -> None:
        """Look for the rows of events that wait for one."""
        wait_us = wait_us_of(self.logic.missing)
        if wait_us is None:
            return
        over_us = self.time.after_us - wait_us
        for number, places, events in self.waiting.peek(self.changes.hashes, over_us):
            is_found = self._found(events)
            is_over = events.times_us < over_us
            self._lack(events.rows.filter(pa.array(~is_found & is_over)), NO_ROW)
            self.waiting.done(number, places[is_found | is_over])

    def _join(self, events: RunRows) -> None:
        """Join events, and let those wait that have no row, if they are to."""
        if not len(events):
            return
        is_found = self._found(events)
        wait_us = wait_us_of(self.logic.missing)
        waits = np.zeros(len(events), dtype=bool)
        if wait_us is not None:
            waits = ~is_found & (events.times_us >= self.time.after_us - wait_us)
            waits &= events.times_us != NO_TIME_US
            self.waiting.add(events.take(np.flatnonzero(waits)))
        self._lack(events.rows.filter(pa.array(~is_found & ~waits)), NO_ROW)

    def _found(self, events: RunRows) -> Flags:
        """Give the events that have a row, and say which they are."""
        is_found, rows = self.table.find(events.rows, events.hashes, events.times_us)
        if rows.num_rows:
            self._give(events.rows.filter(pa.array(is_found)), rows)
        return is_found

    def _lack(self, events: pa.Table, reason: str) -> None:
        """These events have no row."""
        if not events.num_rows:
            return
        self._count("missing", events.num_rows)
        place = final(self.logic.missing)
        if self.logic.how == "left":
            self._give(events, None)
        elif isinstance(place, SideOutput):
            reasons = pa.array([reason] * events.num_rows, pa.string())
            own = events.select([*self.logic.by, *self.logic.left])
            self.missing.append(own.append_column(REASON_COLUMN, reasons))
        else:
            assert place is None or isinstance(place, Drop), "there is no other place"
            self._count("dropped", events.num_rows)

    def _count(self, name: str, count: int) -> None:
        if count:
            self.counts[name] = self.counts.get(name, 0) + count

    def _give(self, events: pa.Table, rows: pa.Table | None) -> None:
        schema = self.logic.output_schemas(self.schema)[RESULTS]
        columns = [events[name] for name in self.logic.event_columns]
        for name in self.logic.right:
            kind = schema.field(name).type
            columns.append(pa.nulls(events.num_rows, kind) if rows is None else rows[name])
        self.results.append(pa.Table.from_arrays(columns, schema=schema))
