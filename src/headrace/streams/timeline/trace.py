"""Let an operator's own logic run over rows once more, and note what happens.

The rows go the way that they go on Spark: each micro-batch is packed, the watermark is tracked from it, and
the logic of windows steps. All keys are in one bucket, which changes nothing: every bucket has the same
watermark, and rows of a key are always in one. Late rows are kept even where the pipeline drops them.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step
from headrace.streams.buckets.packing import arrivals, pack
from headrace.streams.buckets.sources import Longs
from headrace.streams.buckets.tables import KeptTables, Owner, write_table
from headrace.streams.time.bounds import BEGINNING_US, END_US
from headrace.streams.time.policies import Declared, Policy
from headrace.streams.time.watermarks import Tracked, track
from headrace.streams.timeline.assemble import Bounds, Notes, assemble
from headrace.streams.timeline.columns import keys_of, values_of, window_bounds
from headrace.streams.timeline.members import Members
from headrace.streams.timeline.operators import Traced, WindowLogic
from headrace.streams.timeline.timeline import Firing, Lateness, Moment, Timeline
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.late import LatePolicy, SideOutput, Update
from headrace.streams.windows.results import LATE_REASON, WATERMARK
from headrace.streams.windows.sessions import SessionWindows

_NUMBER: Final = "_timeline_row"
"""The column by which late rows are found again."""
_KEPT: Final = SideOutput(topic="timeline")
_MEMBERS: Final = "_timeline_members"
_OWN: Final = ("window", "firing", "retracted", _MEMBERS)


def trace(
    operator: Traced,
    rows: pa.Table,
    batches: Longs,
    numbers: Sequence[int],
    tracked: pa.Table | None = None,
) -> Timeline:
    """What happened to the rows. They have the column `_kafka`, and all that the operator looks at.

    `batches` says of each row which of the micro-batches it came with, whose `numbers` are given in their
    order. `tracked` is the operator's table of the watermark as it was before the first of them.
    """
    is_in = batches >= 0
    rows, batches = rows.filter(pa.array(is_in)).combine_chunks(), batches[is_in]
    rows = rows.append_column(_NUMBER, pa.array(np.arange(len(rows)), pa.int64()))
    notes = Notes()
    run = _Run(operator=operator, notes=notes, store={})
    if tracked is not None:
        run.begin_with(tracked)
    for place, number in enumerate(numbers):
        run.step(rows.filter(pa.array(batches == place)), number)
    run.end(rows.slice(0, 0))
    return assemble(operator, rows, batches, notes)


@dataclass(slots=True, kw_only=True)
class _Run:
    operator: Traced
    notes: Notes
    store: dict[str, bytes]
    """The state, as Spark's would be."""
    table: pa.Table | None = None
    log_time_us: int | None = None
    logic: WindowLogic | None = None
    """The windows, with late rows kept."""

    def __post_init__(self) -> None:
        if isinstance(self.operator.logic, WindowLogic):
            self.logic = _telling(self.operator.logic)

    def begin_with(self, tracked: pa.Table) -> None:
        """Go on from a watermark."""
        self.table = tracked.replace_schema_metadata(None)
        self.store[WATERMARK] = write_table(self.table, self._owner.metadata)

    def step(self, rows: pa.Table, number: int) -> None:
        """Take in a micro-batch."""
        came = Arrivals(rows=rows)
        if len(rows):
            buckets = np.zeros(len(rows), np.int32)
            packed = pack(
                rows,
                buckets,
                bucket_count=1,
                task=0,
                event_time=self.operator.event_time,
                declared=self.operator.declared,
            )
            came = arrivals(blob for _, blob in packed)
        self._note(self._moment(came, number))
        if self.logic is not None and len(rows):
            made = self._stepped(self.logic, came)
            self._note_late(made)
            self._note_firings(made)

    def end(self, no_rows: pa.Table) -> None:
        """Find the windows that wait: those that would fire if the input ended."""
        if self.logic is None or not self.notes.moments:
            return
        made = self._stepped(self.logic, Arrivals(rows=no_rows, is_end=True))
        for bounds, result in self._results(made):
            if not result.get("retracted"):
                self.notes.open.add(bounds)
                self._note_members(bounds, result)

    def _moment(self, came: Arrivals, number: int) -> Moment:
        policy = self.operator.policy
        if policy is None:
            times = [each.record_time_us_max for each in came.progress if each.record_time_us_max is not None]
            newest_us = max(times, default=None)
            return Moment(
                batch=number, row_count=len(came.rows), log_time_us=newest_us, before_us=None, after_us=None
            )
        now = track(policy, self.table, came)
        self.table = now.table
        return _moment(policy, now, number, len(came.rows))

    def _note(self, moment: Moment) -> None:
        known = [time for time in (self.log_time_us, moment.log_time_us) if time is not None]
        self.log_time_us = max(known, default=None)
        self.notes.moments.append(replace(moment, log_time_us=self.log_time_us))

    def _kept(self) -> KeptTables:
        return KeptTables(self.store.get, lambda: list(self.store), self._owner)

    @property
    def _owner(self) -> Owner:
        return Owner(operator=self.operator.name, by=self.operator.by, bucket_count=1)

    def _stepped(self, logic: WindowLogic, came: Arrivals) -> Step:
        kept = self._kept()
        made = logic.step(kept, came)
        for name, blob in kept.changes(made.state).items():
            if blob is None:
                self.store.pop(name)
            else:
                self.store[name] = blob
        return made

    def _note_late(self, made: Step) -> None:
        if LATE not in made.outputs:
            return
        late = made.outputs[LATE]
        before_us = self.notes.moments[-1].before_us
        for number, reason, start_us, end_us in zip(
            late.column(_NUMBER).to_pylist(),
            late.column("reason").to_pylist(),
            *window_bounds(late),
            strict=True,
        ):
            self.notes.late[number] = None
            if reason == LATE_REASON:
                assert before_us is not None, "no row is late without a watermark"
                assert start_us is not None, "a late row has a window"
                assert end_us is not None, "a late row has a window"
                self.notes.late[number] = Lateness(
                    start_us=start_us, end_us=end_us, late_by_us=before_us - end_us
                )

    def _note_firings(self, made: Step) -> None:
        for bounds, result in self._results(made):
            firing = Firing(
                kind=result["firing"],
                moment=len(self.notes.moments) - 1,
                values={name: value for name, value in result.items() if name not in _OWN},
                retracted=bool(result.get("retracted")),
            )
            self.notes.firings.setdefault(bounds, []).append(firing)
            self._note_members(bounds, result)

    def _note_members(self, bounds: Bounds, result: Mapping[str, Any]) -> None:
        if _MEMBERS in result:
            self.notes.members.setdefault(bounds, set()).update(result[_MEMBERS])

    def _results(self, made: Step) -> Iterator[tuple[Bounds, dict[str, Any]]]:
        """Each result without its key and window, and which window it is of."""
        results = made.outputs[RESULTS]
        own = {"window", *(() if self.logic is None else self.logic.by)}
        values = {name: values_of(results.column(name)) for name in results.column_names if name not in own}
        keyed = zip(keys_of(results, self.operator.by), *window_bounds(results), strict=True)
        for number, bounds in enumerate(keyed):
            yield bounds, {name: column[number] for name, column in values.items()}


def _telling(logic: WindowLogic) -> WindowLogic:
    """The same windows, which keep late rows, and in sessions tell their rows."""
    if isinstance(logic, GlobalWindows):
        return logic
    if isinstance(logic, SessionWindows):
        members = Members(name=_MEMBERS, column=_NUMBER)
        logic = replace(logic, aggregates=(*logic.aggregates, members))
    late: LatePolicy = replace(logic.late, then=_KEPT) if isinstance(logic.late, Update) else _KEPT
    return replace(logic, late=late)


def _moment(policy: Policy, now: Tracked, number: int, row_count: int) -> Moment:
    report = now.report
    counting = [each for each in report.sources if each.passed_us is not None and not each.is_idle]
    holder = counting[0] if counting else None
    declares = isinstance(policy, Declared)
    return Moment(
        batch=number,
        row_count=row_count,
        log_time_us=None if now.log_time_us == BEGINNING_US else now.log_time_us,
        before_us=_known(now.before_us),
        after_us=_known(now.after_us),
        holder=None if holder is None else holder.source,
        holder_event_us=None if holder is None else holder.event_us,
        holder_declared_us=_known(holder.passed_us) if holder is not None and declares else None,
        delay_us=report.delay_us,
        idle=tuple(sorted(each.source for each in report.sources if each.is_idle)),
    )


def _known(watermark_us: int | None) -> int | None:
    return watermark_us if watermark_us is not None and BEGINNING_US < watermark_us < END_US else None
