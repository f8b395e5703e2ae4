"""The first row of each key, and none like it for a while after.

A row is given unless a row of its key was given whose time is less than `ttl` away, before or after: so of
the rows that are given, no two of a key are less than a ttl apart. A row that is not given is a duplicate; it
does not make the time longer. Rows count in the order of arrival, and are given at once. Where no `ttl` is
given, a key is given once for ever, and times mean nothing.

State: `given` has the key's columns and `_time_us` of each row that was given. It is kept for twice the ttl,
by the watermark: so rows that are older than the watermark by less than a ttl are still judged rightly. Older
ones can't be; they are late. In words of windows: a row's window is [t, t + ttl), and a row whose window has
ended by the watermark is late.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, Step, Tables
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import track
from headrace.streams.windows.exact import column_type
from headrace.streams.windows.kept_state import check_types
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.late import Drop, LatePolicy, Update, drop
from headrace.streams.windows.results import (
    WATERMARK,
    LateRows,
    Layout,
    time_type,
    times_us,
    watermark_gauge,
)
from headrace.streams.windows.runs import Flags, Indices, stacked

GIVEN: Final = "given"
_TIME: Final = "_time_us"
_ROUNDS_MAX: Final = 64
DUPLICATES: Final = "duplicates"
"""The output of duplicates, with the columns of the rows, where they are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate:
    """Steps deduplication. `time` and `ttl_us` are given together, or not at all."""

    by: tuple[str, ...]
    watermark: Policy
    time: str | None = None
    ttl_us: int | None = None
    late: LatePolicy = drop
    duplicates: LatePolicy = drop
    """Whether duplicates are dropped and counted, or go to an output of their own."""

    def __post_init__(self) -> None:
        if not self.by:
            raise PipelineError("deduplicate() needs the columns that rows are alike in: give it by=[...]")
        if (self.time is None) != (self.ttl_us is None):
            raise PipelineError("deduplicate() needs both an event time and a ttl, or neither of them")
        if isinstance(self.late, Update) or isinstance(self.duplicates, Update):
            raise PipelineError(
                "deduplicate() gives no row twice, so it can't update: drop, or side_output(topic)"
            )

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        for name in self.by:
            column_type(rows, name)
        schemas = {RESULTS: rows, DUPLICATES: rows}
        return schemas if self.time is None else {**schemas, LATE: self._layout(rows, self.time).late}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        if self.time is None or self.ttl_us is None:
            return self._step_for_ever(state, arrivals.rows)
        return self._step_for_a_while(state, arrivals, self.time, self.ttl_us)

    def _layout(self, rows: pa.Schema, time: str) -> Layout:
        return Layout(rows=rows, by=self.by, time=time_type(rows, time), aggregates=())

    def _step_for_ever(self, state: Tables, rows: pa.Table) -> Step:
        given = state.get(GIVEN)
        if given is None:
            given = rows.schema.empty_table().select(list(self.by))
        check_types(given, rows.schema)
        given_codes, codes = key_codes([given, rows], self.by)
        is_new = _is_first(codes) & ~np.isin(codes, given_codes)
        if is_new.any():
            new = rows.select(list(self.by)).filter(pa.array(is_new))
            given = stacked([given, new]).combine_chunks()
        outputs, counts = self._told(rows, is_new, ~is_new)
        return Step(state={GIVEN: given}, outputs=outputs, counts=counts)

    def _step_for_a_while(self, state: Tables, arrivals: Arrivals, time: str, ttl_us: int) -> Step:
        tracked = track(self.watermark, state.get(WATERMARK), arrivals)
        rows = arrivals.rows
        given = state.get(GIVEN)
        if given is None:
            given = _given_table(rows.slice(0, 0), np.zeros(0, dtype=np.int64), self.by)
        check_types(given, rows.schema)
        time_us, has_time = times_us(rows, time)
        late = LateRows(
            is_late=has_time & (time_us + ttl_us <= tracked.before_us),
            has_time=has_time,
            start_us=time_us,
            end_us=time_us + ttl_us,
            watermark_us=tracked.before_us,
        )
        is_judged = has_time & ~late.is_late
        codes = key_codes([given, rows.filter(pa.array(is_judged))], self.by)
        is_new = np.zeros(rows.num_rows, dtype=bool)
        is_new[is_judged] = _is_new(codes, _times_us(given), time_us[is_judged], ttl_us)
        if is_new.any():
            new = _given_table(rows.filter(pa.array(is_new)), time_us[is_new], self.by)
            given = stacked([given, new]).combine_chunks()
        stays = _times_us(given) + 2 * ttl_us > tracked.after_us
        outputs, counts = self._told(rows, is_new, is_judged & ~is_new)
        return Step(
            state={WATERMARK: tracked.table, GIVEN: given if stays.all() else given.filter(pa.array(stays))},
            outputs={**outputs, **late.outputs(rows, self._layout(rows.schema, time), self.late)},
            counts={**counts, **late.counts(self.late)},
            gauges=watermark_gauge(tracked.after_us),
            time_report=tracked.report,
        )

    def _told(
        self, rows: pa.Table, is_new: Flags, is_duplicate: Flags
    ) -> tuple[dict[str, pa.Table], dict[str, int]]:
        outputs = {RESULTS: rows.filter(pa.array(is_new))}
        count = int(np.count_nonzero(is_duplicate))
        if count and not isinstance(self.duplicates, Drop):
            outputs[DUPLICATES] = rows.filter(pa.array(is_duplicate))
        return outputs, {"duplicates": count} if count else {}


def _given_table(rows: pa.Table, time_us: Indices, by: Sequence[str]) -> pa.Table:
    return rows.select(list(by)).append_column(_TIME, pa.array(time_us))


def _times_us(given: pa.Table) -> Indices:
    return np.asarray(given[_TIME], dtype=np.int64)


def _is_first(codes: Indices) -> Flags:
    """Which rows are the first of their key."""
    is_first = np.zeros(len(codes), dtype=bool)
    is_first[np.unique(codes, return_index=True)[1]] = True
    return is_first


def _is_new(codes: list[Indices], given_us: Indices, time_us: Indices, ttl_us: int) -> Flags:
    """Which rows are to be given, in the order of arrival. `codes` are of what was given before, and of them.

    Rows near what was given before fall out first. Then, in each round, the first row left of each key is
    given, and those near it fall out. Keys that go on for many rounds are gone through row by row.
    """
    given_codes, row_codes = codes
    left = np.flatnonzero(~_is_near(given_codes, given_us, row_codes, time_us, ttl_us))
    is_new = np.zeros(len(row_codes), dtype=bool)
    first = np.empty(row_codes.max(initial=-1) + 1, dtype=np.int64)
    for _ in range(_ROUNDS_MAX):
        # Written backwards, so that what stays is where each key is first.
        first[row_codes[left[::-1]]] = left[::-1]
        of_key = first[row_codes[left]]
        is_new[of_key] = True
        left = left[np.abs(time_us[left] - time_us[of_key]) >= ttl_us]
    taken: dict[int, list[int]] = {}
    for row, code, at_us in zip(left.tolist(), row_codes[left].tolist(), time_us[left].tolist(), strict=True):
        times = taken.setdefault(code, [])
        place = bisect.bisect(times, at_us)
        if all(abs(at_us - near_us) >= ttl_us for near_us in times[max(place - 1, 0) : place + 1]):
            times.insert(place, at_us)
            is_new[row] = True
    return is_new


def _is_near(known_codes: Indices, known_us: Indices, codes: Indices, time_us: Indices, ttl_us: int) -> Flags:
    """Which rows have a known one of their key less than a ttl away."""
    if not len(known_codes):
        return np.zeros(len(codes), dtype=bool)
    times_us, ranks = np.unique(np.concatenate([known_us, time_us]), return_inverse=True)
    # Ranks stand for times, so that keys can be put in front without overflow.
    places = np.concatenate([known_codes, codes]) * len(times_us) + ranks
    order = np.argsort(places[: len(known_codes)])
    known, at = places[: len(known_codes)][order], places[len(known_codes) :]
    after = np.searchsorted(known, at)
    is_near = np.zeros(len(codes), dtype=bool)
    for neighbour in (np.maximum(after - 1, 0), np.minimum(after, len(known) - 1)):
        is_same_key = known_codes[order][neighbour] == codes
        is_near |= is_same_key & (np.abs(known_us[order][neighbour] - time_us) < ttl_us)
    return is_near
