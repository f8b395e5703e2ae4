"""A step's search for a pattern, over the rows of all keys of a bucket: see logic.py for what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.buckets.logic import RESULTS
from headrace.streams.patterns.attempts import Attempts, OrderedRows, begin, chosen, together
from headrace.streams.patterns.automaton import Automaton, automaton_of
from headrace.streams.patterns.equals import APART, equals_before
from headrace.streams.patterns.evidence import CUT_OFF, Told, match_schema, match_table, own_names
from headrace.streams.patterns.looks import AutomatonLook, FunctionLook, Searched
from headrace.streams.patterns.python_rows import PythonRows, covered
from headrace.streams.patterns.settling import Look, Settled, settle
from headrace.streams.patterns.walk import Outcome
from headrace.streams.time.bounds import END_US
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.kept_state import check_types
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.late import Drop
from headrace.streams.windows.results import time_type, times_us
from headrace.streams.windows.runs import Flags, Indices, ranges, run_lengths, starts_of_changes

if TYPE_CHECKING:
    from headrace.streams.patterns.logic import PatternMatches
    from headrace.streams.time.watermarks import Tracked

_KEPT: Final = pa.schema(
    {
        "_threads": pa.binary(),
        "_matched": pa.int64(),
        "_outcome": pa.int8(),
        "_length": pa.int64(),
        "_apart": pa.int64(),
    }
)


@dataclass(slots=True, kw_only=True)
class Search:
    """A step's search, over what is kept of the rows that have come up before, and those that come up now.

    `place` of a row is where it is in the order of keys, `source` where it is in the two tables.
    """

    logic: PatternMatches
    kept: pa.Table
    ready: pa.Table
    names: list[str]
    """The columns of rows that are kept."""
    automaton: Automaton
    source: Indices
    rows: OrderedRows
    attempts: Attempts
    is_changed: bool
    begun: Indices
    """The places at which attempts begin in this step."""
    stacked: pa.Table | None = None
    equals: Indices | None = None

    @classmethod
    def of(cls, logic: PatternMatches, kept: pa.Table | None, ready: pa.Table) -> Search:
        names = [*own_names(ready.schema), logic.mask]
        kept = fitted(kept, pa.schema([*(ready.schema.field(name) for name in names), *_KEPT]))
        automaton = automaton_of(logic.program, is_ordered=not logic.functions)
        codes = np.concatenate(key_codes([kept, ready], logic.by))
        source = np.argsort(codes, kind="stable")
        starts = starts_of_changes(codes[source])
        lengths = run_lengths(starts, len(source))
        rows = OrderedRows(
            masks=_gathered(kept, ready, lambda table: np.asarray(table[logic.mask], dtype=np.int64))[source],
            time_us=_gathered(kept, ready, lambda table: times_us(table, logic.time)[0])[source],
            key_ends=np.repeat(starts + lengths, lengths),
        )
        begun = np.flatnonzero((source >= kept.num_rows) & (rows.masks & automaton.first_mask != 0))
        attempts = together(
            _kept_attempts(kept, automaton, source, starts, lengths), begin(begun, automaton.start)
        )
        return cls(
            logic=logic,
            kept=kept,
            ready=ready,
            names=names,
            automaton=automaton,
            source=source,
            rows=rows,
            attempts=attempts,
            is_changed=ready.num_rows > 0,
            begun=begun,
        )

    def run(self, tracked: Tracked) -> tuple[dict[str, pa.Table], dict[str, int], pa.Table]:
        """The outputs, what is counted, and what is kept."""
        logic, attempts = self.logic, self.attempts
        before, at = attempts.outcome.copy(), attempts.at.copy()
        attempts.go_on(self.automaton, self.rows, within_us=logic.within_us, limit=logic.limit)
        attempts.close(self.automaton, self.rows, within_us=logic.within_us, watermark_us=tracked.after_us)
        is_moved = (attempts.at > at) | (attempts.outcome != before)
        is_possible = attempts.outcome != Outcome.FAILED
        self.attempts = chosen(attempts, is_possible)
        look = self._look(is_moved[is_possible], is_end=tracked.after_us >= END_US)
        settled = settle(self.attempts, self.rows.key_ends[self.attempts.first], logic.emit, look)
        self.is_changed |= bool((attempts.outcome != before).any()) or not settled.stays.all()
        outputs, counts = self._told(settled, look)
        return outputs, counts, self._still_kept(chosen(self.attempts, settled.stays))

    def _look(self, is_moved: Flags, *, is_end: bool) -> Look:
        logic = self.logic
        searched = Searched(
            program=logic.program,
            names=logic.names,
            emit=logic.emit,
            rows=self.rows,
            attempts=self.attempts,
        )
        if not logic.functions:
            return AutomatonLook(searched, self.automaton)
        return FunctionLook(
            searched=searched,
            functions=logic.functions,
            by=logic.by,
            is_due=is_moved,
            is_end=is_end,
            python_rows=lambda: self._python_rows(is_moved),
        )

    def _python_rows(self, is_moved: Flags) -> PythonRows:
        """The rows of the keys of which an attempt has moved, as far as attempts have seen them."""
        ends = self.rows.key_ends[self.attempts.first]
        of = chosen(self.attempts, np.isin(ends, ends[is_moved]))
        lengths = np.where(of.outcome == Outcome.UNDECIDED, of.at - of.first, of.length)
        asked = covered(of.first, lengths, len(self.source))
        return PythonRows(self._both().select(self.names[:-1]), self.source, asked)

    def _told(self, settled: Settled, look: Look) -> tuple[dict[str, pa.Table], dict[str, int]]:
        logic = self.logic
        told = {Outcome.MATCHED, Outcome.TIMED_OUT} if logic.tells_timed_out else {Outcome.MATCHED}
        results = [each for each in settled.given if each[1] in told]
        cut_off = [each for each in settled.given if each[1] is Outcome.CUT_OFF]
        found = self._table(_evidence(results, self.attempts, look))
        firsts = self.attempts.first[np.asarray([number for number, _ in results], dtype=np.int64)]
        outputs = {RESULTS: found.append_column(APART, self._apart(firsts))}
        if cut_off and not isinstance(logic.cut_off, Drop):
            outputs[CUT_OFF] = self._table(_evidence(cut_off, self.attempts, look))
        matches = sum(outcome is Outcome.MATCHED for _, outcome in results)
        counts = {"matches": matches, "timed_out": len(results) - matches, "cut_off": len(cut_off)}
        return outputs, {name: count for name, count in counts.items() if count}

    def _table(self, told: list[Told]) -> pa.Table:
        logic = self.logic
        schema = match_schema(self.ready.schema, logic.by, time_type(self.ready.schema, logic.time))
        if not told:
            return schema.empty_table()
        places = np.asarray([place for each in told for place in each.places], dtype=np.int64)
        return match_table(
            schema,
            told,
            names=logic.names,
            rows=self._rows(places),
            time_us=self.rows.time_us[places],
            by=logic.by,
            within_us=logic.within_us,
            is_until_over=logic.program.has_tail,
        )

    def _rows(self, places: Indices) -> pa.Table:
        return self._both().take(pa.array(self.source[places]))

    def _apart(self, firsts: Indices) -> pa.Array:
        """What tells apart the matches that begin at these places."""
        source, count = self.source[firsts], len(self.kept)
        is_new = source >= count
        before = self._equals_before()[firsts[is_new]]
        new = pa.array(before, pa.int64(), mask=before == 0)
        at = np.where(is_new, count + np.cumsum(is_new) - 1, source)
        return pa.concat_arrays([in_one_piece(self.kept["_apart"]), new]).take(pa.array(at))

    def _equals_before(self) -> Indices:
        """How many equal rows lie before each new row at which an attempt begins, by places."""
        if self.equals is None:
            self.equals = np.zeros(len(self.source), dtype=np.int64)
            if self.logic.is_by_arrival:
                return self.equals
            self.equals[self.begun] = equals_before(
                self.rows.key_ends[self.begun],
                self.rows.time_us[self.begun],
                lambda which: self._rows(self.begun[which]).select(self.names[:-1]),
            )
        return self.equals

    def _both(self) -> pa.Table:
        """The rows of both tables, in one piece, so that taking some of them costs nothing for the others."""
        if self.stacked is None:
            both = [self.kept.select(self.names), self.ready.select(self.names)]
            self.stacked = pa.concat_tables(both).combine_chunks()
        return self.stacked

    def _still_kept(self, attempts: Attempts) -> pa.Table:
        """The rows from the first attempt of each key on."""
        if not self.is_changed:
            return self.kept
        ends = self.rows.key_ends[attempts.first]
        firsts = attempts.first[np.unique(ends, return_index=True)[1]]
        lengths = self.rows.key_ends[firsts] - firsts
        places = ranges(firsts, lengths)
        at = np.searchsorted(places, attempts.first)
        is_attempt = np.zeros(len(places), dtype=bool)
        is_attempt[at] = True
        threads: list[bytes | None] = [None] * len(places)
        for place, written in zip(at.tolist(), self.automaton.written(attempts.state), strict=True):
            threads[place] = written
        own = [
            pa.array(threads, pa.binary()),
            _sparse(attempts.match_length, at, is_attempt),
            _sparse(attempts.outcome, at, is_attempt),
            _sparse(attempts.length, at, is_attempt),
            self._apart(attempts.first).take(_sparse(np.arange(len(at)), at, is_attempt)),
        ]
        rows = self._rows(places)
        columns = [*rows.columns, *(column.cast(each.type) for column, each in zip(own, _KEPT, strict=True))]
        return pa.Table.from_arrays(columns, schema=pa.schema([*rows.schema, *_KEPT])).combine_chunks()


def fitted(kept: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """A table of state with the columns that rows have now; one that is new is NULL in older rows."""
    if kept is None:
        return schema.empty_table()
    check_types(kept, schema)
    if kept.schema.equals(schema):
        return kept
    count, known = kept.num_rows, set(kept.schema.names)
    columns = [kept[each.name] if each.name in known else pa.nulls(count, each.type) for each in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _evidence(given: list[tuple[int, Outcome]], attempts: Attempts, look: Look) -> list[Told]:
    first = attempts.first.tolist()
    return [
        Told(
            outcome=outcome,
            bits=tuple(bit for bit, _ in taken),
            places=tuple(first[number] + place for _, place in taken),
        )
        for (number, outcome), taken in zip(given, look.taken([each for each, _ in given]), strict=True)
    ]


def _gathered(kept: pa.Table, ready: pa.Table, read: Callable[[pa.Table], Indices]) -> Indices:
    return np.concatenate([read(kept), read(ready)])


def _kept_attempts(
    kept: pa.Table, automaton: Automaton, source: Indices, starts: Indices, lengths: Indices
) -> Attempts:
    """The attempts that are waited for; they go on at the first new row of their key."""
    threads = in_one_piece(kept["_threads"])
    which = np.flatnonzero(np.asarray(threads.is_valid()))
    place_of = np.empty(len(source), dtype=np.int64)
    place_of[source] = np.arange(len(source))
    first = place_of[which]
    new_before = np.append(0, np.cumsum(source >= kept.num_rows))
    run = np.searchsorted(starts, first, side="right") - 1
    ends = starts[run] + lengths[run]
    order = np.argsort(first, kind="stable")
    which, first, ends = which[order], first[order], ends[order]
    picked = kept.select(_KEPT.names).take(pa.array(which))
    return Attempts(
        first=first,
        at=ends - (new_before[ends] - new_before[first]),
        state=automaton.read(picked["_threads"].to_pylist()),
        match_length=np.array(picked["_matched"], dtype=np.int64),
        outcome=np.array(picked["_outcome"], dtype=np.int8),
        length=np.array(picked["_length"], dtype=np.int64),
    )


def _sparse(values: npt.NDArray[np.signedinteger[Any]], at: Indices, is_there: Flags) -> pa.Array:
    """Values at these places, and NULL at the others."""
    filled = np.zeros(len(is_there), dtype=values.dtype)
    filled[at] = values
    return pa.array(filled, mask=~is_there)
