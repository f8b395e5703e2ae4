"""A user's function over keyed state, called for each row.

In a micro-batch, for each key that has rows, or a timer that is due:

1. Its rows, in the order of the log. Before a row: timers that are due by the row's own time less the
   watermark's delay fire; then, if the key has no timer and the row's time is `ttl` or more after that of the
   newest row before it, the state begins anew.
2. Timers that are due by the watermark, as it is after the micro-batch, fire, the earliest first. Those that
   they set in turn fire as well, if they are due.
3. A key without timers is forgotten when the watermark has come to `ttl` after its newest row; and a key
   whose state was cleared is forgotten at once.

So a row never sees state that is older than `ttl`, wherever micro-batches are cut. Whether a timer fires
before or after a row that is less than the delay behind it may depend on that.

The table that is kept has a row for each key: its columns, the fields of the state, and

    _timers   list of (name, due_us)
    _last_us  the newest time of a row, or of a timer that fired
    _due_us   when the key has to be looked at next, if no row comes; null for never

A row without a time is handed to the function like others, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.keyed.calling import failure, place, rows_of
from headrace.streams.keyed.clock import read_clock
from headrace.streams.keyed.fields import KEYS, Fields, column_of, snapshot
from headrace.streams.keyed.timers import Timer, Timers, moment
from headrace.streams.time.policies import Adaptive, Bounded, Policy
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Indices

FIRED_MAX: Final = 100_000
"""How many timers of one key may fire in one go: one that always sets itself again at once has no end."""
INTERNAL: Final = {
    "_timers": pa.list_(pa.struct({"name": pa.string(), "due_us": pa.int64()})),
    "_last_us": pa.int64(),
    "_due_us": pa.int64(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PerEvent:
    """The logic. `step` takes a key, a row, the state and, if it wants to, timers."""

    fields: Fields
    """What is kept, INTERNAL included."""
    returns: pa.Schema
    """The columns of results, behind those of the key."""
    function: Callable[..., Any]
    takes_timers: bool
    on_timer: Callable[..., Any] | None
    one_key: bool
    """Whether a key is handed over as one value, and not as a tuple."""
    event_time: str | None
    ttl_us: int | None
    watermark: Policy

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:  # noqa: ARG002 - a key has its type
        """The results' columns."""
        return {RESULTS: pa.schema([*self.fields.keys, *self.returns])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Step one bucket."""
        clock = read_clock(state, arrivals, event_time=self.event_time, watermark=self.watermark)
        table = self.fields.read(state.get(KEYS))
        kept_numbers, row_numbers = key_codes([table, arrivals.rows], self.fields.keys.names)
        due = pc.fill_null(pc.less_equal(table.column("_due_us"), clock.after_us), fill_value=False)
        touched = np.zeros(1 + max(kept_numbers.max(initial=-1), row_numbers.max(initial=-1)), np.bool_)
        touched[row_numbers] = True
        touched[kept_numbers[due.to_numpy()]] = True
        run = _Run(logic=self, now_us=clock.after_us, is_end=arrivals.is_end)
        run.take_cells(table, kept_numbers, touched)
        run.take_rows(arrivals.rows, row_numbers)
        run.finish()
        if arrivals.is_end:
            return Step(state={}, outputs={RESULTS: run.results()}, counts=run.counts)
        if touched.any():
            table = pa.concat_tables([table.filter(pa.array(~touched[kept_numbers])), run.kept()])
        return Step(
            state={KEYS: table, **clock.kept},
            outputs={RESULTS: run.results()},
            counts=run.counts,
            gauges=clock.gauges,
            time_report=clock.time_report,
        )

    @property
    def delay_us(self) -> int | None:
        """How long the watermark waits at most; None where it does not say."""
        if isinstance(self.watermark, Bounded):
            return self.watermark.delay_us
        return self.watermark.at_most_us if isinstance(self.watermark, Adaptive) else None


@dataclass(slots=True)
class _Cell:
    """A key that is being looked at."""

    values: tuple[Any, ...]
    kept: dict[str, Any]
    due_us: dict[str, int] = field(default_factory=dict)
    last_us: int | None = None


@dataclass(slots=True, kw_only=True)
class _Run:
    """One step of one bucket."""

    logic: PerEvent
    now_us: int
    """The watermark after the micro-batch."""
    is_end: bool
    counts: dict[str, int] = field(default_factory=dict)
    _cells: dict[int, _Cell] = field(default_factory=dict)
    """By the key's number."""
    _made: list[tuple[tuple[Any, ...], Mapping[str, Any]]] = field(default_factory=list)
    # Asked for with each row, and Arrow makes them anew each time.
    _result_names: frozenset[str] = field(init=False)
    _field_names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._result_names = frozenset(self.logic.returns.names)
        self._field_names = frozenset(self.logic.fields.kept.names)

    def take_cells(self, table: pa.Table, numbers: Indices, touched: np.ndarray[Any, Any]) -> None:
        """Read the state of the keys that are touched."""
        rows = np.flatnonzero(touched[numbers])
        part = table.take(pa.array(rows))
        keys = _tuples(part, self.logic.fields.keys.names)
        names = self.logic.fields.kept.names
        kept = _tuples(part, names) if names else [()] * len(rows)
        timers, lasts = (part.column(name).to_pylist() for name in ("_timers", "_last_us"))
        for number, key, values, due, last_us in zip(
            numbers[rows].tolist(), keys, kept, timers, lasts, strict=True
        ):
            due_us = {each["name"]: each["due_us"] for each in due or ()}
            self._cells[number] = _Cell(key, dict(zip(names, values, strict=True)), due_us, last_us)

    def take_rows(self, rows: pa.Table, numbers: Indices) -> None:
        """Hand the rows over, key by key."""
        if not len(rows):
            return
        order = np.argsort(numbers, kind="stable")
        ordered = rows.take(pa.array(order))
        names = [name for name in rows.column_names if name != METADATA_COLUMN]
        given = _tuples(ordered, names)
        keys = _tuples(ordered, self.logic.fields.keys.names)
        times = self._times(ordered)
        changes = np.flatnonzero(np.diff(numbers[order])) + 1
        starts = [0, *changes.tolist(), len(rows)]
        for start, end in pairwise(starts):
            number = int(numbers[order[start]])
            if number not in self._cells:
                self._cells[number] = _Cell(keys[start], self.logic.fields.fresh())
            cell = self._cells[number]
            for place_ in range(start, end):
                row = dict(zip(names, given[place_], strict=True))
                self._take(cell, row, times[place_])

    def finish(self) -> None:
        """Fire what the watermark has come to, and forget what is over."""
        for number in sorted(self._cells):
            cell = self._cells[number]
            self._fire(cell, self.now_us)
            self._check_fields(cell)
            if self._is_over(cell, self.now_us) or not (cell.kept or cell.due_us):
                del self._cells[number]
                self.counts["keys_forgotten"] = self.counts.get("keys_forgotten", 0) + 1

    def kept(self) -> pa.Table:
        """The keys that were looked at, as they are kept."""
        fields = self.logic.fields
        cells = [self._cells[number] for number in sorted(self._cells)]
        keys = zip(*(cell.values for cell in cells), strict=True) if cells else [()] * len(fields.keys)
        columns = [pa.array(values, kept.type) for values, kept in zip(keys, fields.keys, strict=True)]
        for kept in fields.kept:
            default = fields.defaults.get(kept.name)
            values = [cell.kept.get(kept.name, default) for cell in cells]
            told = f"{fields.operator}: the state's field {kept.name!r} that {place(self.logic.function)} set"
            columns.append(column_of(values, kept.type, told))
        columns += [
            pa.array([_listed(cell.due_us) for cell in cells], INTERNAL["_timers"]),
            pa.array([cell.last_us for cell in cells], pa.int64()),
            pa.array([self._due_us(cell) for cell in cells], pa.int64()),
        ]
        return pa.table(columns, schema=fields.schema)

    def results(self) -> pa.Table:
        """What the functions have made."""
        logic = self.logic
        columns = [
            pa.array([values[i] for values, _ in self._made], key.type)
            for i, key in enumerate(logic.fields.keys)
        ]
        for result in logic.returns:
            values = [row.get(result.name) for _, row in self._made]
            told = f"{logic.fields.operator}: the result {result.name!r} of {place(logic.function)}"
            columns.append(column_of(values, result.type, told))
        return pa.table(columns, schema=logic.output_schemas(pa.schema([]))[RESULTS])

    def _take(self, cell: _Cell, row: dict[str, Any], time_us: int | None) -> None:
        logic = self.logic
        if time_us is not None:
            if cell.due_us and logic.delay_us is not None:
                self._fire(cell, time_us - logic.delay_us)
            if self._is_over(cell, time_us):
                cell.kept = logic.fields.fresh()
            cell.last_us = time_us if cell.last_us is None else max(time_us, cell.last_us)
        if not cell.kept:
            cell.kept = logic.fields.fresh()
        self._call(logic.function, cell, row, takes_timers=logic.takes_timers)

    def _is_over(self, cell: _Cell, time_us: int) -> bool:
        """Whether what is kept of the key counts no more at this time."""
        ttl_us = self.logic.ttl_us
        if ttl_us is None or cell.last_us is None or cell.due_us:
            return False
        return time_us >= cell.last_us + ttl_us

    def _fire(self, cell: _Cell, until_us: int) -> None:
        fired = 0
        while cell.due_us:
            due_us, name = min((due_us, name) for name, due_us in cell.due_us.items())
            if due_us > until_us:
                return
            del cell.due_us[name]
            fired += 1
            on_timer = self.logic.on_timer
            assert on_timer is not None, "timers are only given where somebody takes them"
            if fired > FIRED_MAX:
                raise PipelineError(
                    f"{place(on_timer)}: timer {name!r} of key {self._key(cell)!r} was set again and again, "
                    f"{FIRED_MAX:,} times: set it later, and not at all once timers.is_end"
                )
            cell.last_us = due_us if cell.last_us is None else max(due_us, cell.last_us)
            cell.kept = cell.kept or self.logic.fields.fresh()
            self._call(on_timer, cell, Timer(name, moment(due_us)), takes_timers=True)

    def _call(self, function: Callable[..., Any], cell: _Cell, given: object, *, takes_timers: bool) -> None:
        try:
            if takes_timers:
                timers = Timers(cell.due_us, is_end=self.is_end)
                made = function(self._key(cell), given, cell.kept, timers)
            else:
                made = function(self._key(cell), given, cell.kept)
            for row in rows_of(made):
                self._check_result(row)
                self._made.append((cell.values, {name: snapshot(value) for name, value in row.items()}))
        except Exception as error:
            raise failure(function, error, key=self._key(cell), given=given) from error

    def _check_result(self, row: Mapping[str, Any]) -> None:
        if not row.keys() <= self._result_names:
            unknown = [name for name in row if name not in self._result_names]
            declared = ", ".join(self.logic.returns.names) or "nothing"
            raise KeyError(f"it gave {', '.join(map(repr, unknown))}; returns has {declared}")

    def _check_fields(self, cell: _Cell) -> None:
        fields = self.logic.fields
        unknown = [name for name in cell.kept if name not in self._field_names]
        if unknown:
            raise PipelineError(
                f"{place(self.logic.function)}: it keeps {', '.join(map(repr, unknown))} of key "
                f"{self._key(cell)!r}; declare it: state has {', '.join(fields.kept.names) or 'nothing'}"
            )

    def _key(self, cell: _Cell) -> object:
        return cell.values[0] if self.logic.one_key else cell.values

    def _times(self, rows: pa.Table) -> Sequence[int | None]:
        if self.logic.event_time is None:
            return [None] * len(rows)
        times = rows.column(self.logic.event_time)
        found: list[int | None] = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_pylist()
        return found

    def _due_us(self, cell: _Cell) -> int | None:
        if cell.due_us:
            return min(cell.due_us.values())
        if self.logic.ttl_us is None or cell.last_us is None:
            return None
        return cell.last_us + self.logic.ttl_us


def _listed(due_us: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "due_us": due_us[name]} for name in sorted(due_us)]


def _tuples(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of each row, as Python has them."""
    return list(zip(*(_values(table.column(name)) for name in names), strict=True))


def _values(column: pa.ChunkedArray) -> Iterator[Any] | list[Any]:
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    numbers = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    if column.type.tz is None:
        return [None if each is None else moment(each).replace(tzinfo=None) for each in numbers]
    # Arrow's own way looks the time zone up for each value.
    return [None if each is None else moment(each) for each in numbers]
