"""Rows of a few keys, a way to step the search as a query would that is restarted, and a naive search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, SourceProgress
from headrace.streams.buckets.tables import read_table, write_table
from headrace.streams.patterns.equals import APART
from headrace.streams.patterns.evidence import CUT_OFF
from headrace.streams.patterns.logic import PatternMatches
from headrace.streams.patterns.normal_form import Contiguity, is_nullable, normal_form
from headrace.streams.patterns.program import compile_pattern
from headrace.streams.patterns.skipping import Emit, non_overlapping
from headrace.streams.patterns.so_far import Condition, MatchSoFar
from headrace.streams.patterns.syntax import Alternation, Gap, Node, Repeat, Step, parse
from headrace.streams.patterns.syntax import Sequence as InOrder
from headrace.streams.time.policies import Bounded
from headrace.streams.windows.late import Drop, SideOutput, side_output

SECOND_US = 1_000_000
NAMES = ("a", "b", "c")
ROWS = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "amount": pa.int64(),
        "id": pa.int64(),
        "_argument_mask": pa.int64(),
    }
)

Found = tuple[str | None, str, int, int, tuple[tuple[str, int], ...]]
"""A match: the key, the outcome, the start, the end in seconds, and the names and ids of its rows."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a stream: the names whose conditions are true, and when it was, in seconds."""

    key: str | None
    at: int | None
    names: str
    id: int = 0
    amount: int | None = 1

    @property
    def mask(self) -> int:
        return sum(1 << NAMES.index(name) for name in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched for."""

    pattern: str
    within: int | None = 5
    emit: Emit = non_overlapping
    contiguity: Contiguity = "strict"
    limit: int = 1_000
    is_by_arrival: bool = False
    timed_out: bool = False
    cut_off: Drop | SideOutput = field(default_factory=lambda: side_output("cut-off"))
    functions: Mapping[str, Condition] = field(default_factory=dict)

    def logic(self) -> PatternMatches:
        """As it is stepped."""
        return PatternMatches(
            by=("key",),
            time="at",
            program=compile_pattern(normal_form(parse(self.pattern), self.contiguity), NAMES),
            names=NAMES,
            mask="_argument_mask",
            watermark=Bounded(delay_us=3 * SECOND_US),
            within_us=None if self.within is None else self.within * SECOND_US,
            functions={NAMES.index(name): function for name, function in self.functions.items()},
            emit=self.emit,
            limit=self.limit,
            is_by_arrival=self.is_by_arrival,
            skips_others=self.contiguity == "relaxed",
            tells_timed_out=self.timed_out,
            late=side_output("late"),
            cut_off=self.cut_off,
        )


@dataclass(slots=True)
class Run:
    """A search that goes on from micro-batch to micro-batch."""

    search: Search
    found: list[Found] = field(default_factory=list)
    late_ids: set[int] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    state: dict[str, pa.Table] = field(default_factory=dict)
    ids: list[tuple[Found, int | None]] = field(default_factory=list)
    """Matches, and what tells those of equal rows apart."""

    def arrivals(self, rows: Iterable[Row]) -> Arrivals:
        """Rows as a bucket gets them."""
        return _arrivals(list(rows), is_end=False)

    def step(self, rows: Iterable[Row] = (), *, is_end: bool = False) -> list[Found]:
        """Step a micro-batch, as a new process would: what it finds. Doing it again must find the same."""
        logic, arrivals = self.search.logic(), _arrivals(list(rows), is_end=is_end)
        made = logic.step(self.state, arrivals)
        again = logic.step(self.state, arrivals)
        assert again.outputs == made.outputs
        assert all(again.state[name].equals(table) for name, table in made.state.items())
        schemas = logic.output_schemas(ROWS)
        assert all(table.schema.equals(schemas[name]) for name, table in made.outputs.items())
        self.state = {name: read_table(write_table(table)) for name, table in made.state.items()}
        for name, count in made.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.late_ids |= {row["id"] for row in made.outputs.get(LATE, pa.table({})).to_pylist()}
        told = [
            _found(row)
            for name in (RESULTS, CUT_OFF)
            if name in made.outputs
            for row in made.outputs[name].to_pylist()
        ]
        self.found += told
        self.ids += [(_found(row), row[APART]) for row in made.outputs[RESULTS].to_pylist()]
        return told


@pytest.fixture
def start() -> Callable[..., Run]:
    """Begin a search."""

    def begin(pattern: str, **asked: Any) -> Run:
        return Run(Search(pattern=pattern, **asked))

    return begin


@pytest.fixture
def row() -> type[Row]:
    """Makes rows."""
    return Row


@pytest.fixture
def naive() -> Callable[[Search, Sequence[Row]], list[Found]]:
    """What a search finds in all rows, in the order in which they came."""
    return _naive


@pytest.fixture
def run_of() -> Callable[[Search], Run]:
    """Begin a search that is described."""
    return Run


def _arrivals(rows: list[Row], *, is_end: bool) -> Arrivals:
    table = pa.Table.from_pydict(
        {
            "key": [row.key for row in rows],
            "at": pa.array([None if row.at is None else row.at * SECOND_US for row in rows], pa.int64()).view(
                pa.timestamp("us", "UTC")
            ),
            "amount": [row.amount for row in rows],
            "id": [row.id for row in rows],
            "_argument_mask": [row.mask for row in rows],
        },
        schema=ROWS,
    )
    times = [row.at for row in rows if row.at is not None]
    progress = SourceProgress(
        source="events-0",
        row_count=len(rows),
        event_time_us_max=max(times) * SECOND_US if times else None,
        record_time_us_max=0,
    )
    return Arrivals(rows=table, progress=(progress,) if rows else (), is_end=is_end)


def _found(row: Mapping[str, Any]) -> Found:
    evidence = tuple((each["matched"], each["row"]["id"]) for each in row["evidence"])
    start, end = (int(row[name].timestamp()) for name in ("start", "end"))
    return row["key"], row["outcome"], start, end, evidence


def _naive(search: Search, rows: Sequence[Row]) -> list[Found]:
    found: list[Found] = []
    for key in dict.fromkeys(row.key for row in rows):
        mine = [row for row in rows if row.key == key and (search.contiguity == "strict" or row.names)]
        if not search.is_by_arrival:
            mine.sort(key=lambda row: row.at or 0)
        found += _Naive(search, mine).all()
    return found


Taken = tuple[tuple[str, int], ...]
Ways = Iterator[tuple[int, Taken, frozenset[str] | None]]
"""Where to go on, what was taken so far, and which rows may not lie there; None if nothing is said."""
DIRECT = frozenset({"no row may lie here"})


@dataclass(slots=True)
class _Naive:
    """Tries each way to match, in the order of preference, over the pattern as it was written."""

    search: Search
    rows: list[Row]
    begin: int = 0
    end: int = 0
    partials: list[Taken] = field(default_factory=list)
    """Ways that ended where a row was missing, the preferred first."""

    def all(self) -> list[Found]:
        found, go_on_at = [], 0
        for begin in range(len(self.rows)):
            self.begin = begin
            if begin < go_on_at:
                continue
            outcome, taken = self.attempt()
            if outcome == "match":
                places = [place for _, place in taken]
                of_name = [place for name, place in taken if name == self.search.emit.name]
                go_on_at = {
                    "behind": places[-1] + 1,
                    "next": 0,
                    "first": of_name[0] if of_name else 0,
                    "last": of_name[-1] if of_name else 0,
                }[self.search.emit.to]
            if outcome in {"match", "cut_off"} or (outcome == "timed_out" and self.search.timed_out):
                found.append(self.told(outcome, taken))
        return found

    def told(self, outcome: str, taken: Taken) -> Found:
        rows = [self.rows[place] for _, place in taken]
        times = [row.at or 0 for row in rows]
        end = max(times)
        is_tail = self.search.pattern.split()[-1].startswith("!")
        if outcome == "timed_out" or (outcome == "match" and is_tail):
            end = times[0] + (self.search.within or 0)
        evidence = tuple((name, self.rows[place].id) for name, place in taken)
        return rows[0].key, outcome, min(times), end, evidence

    def attempt(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        first, within = self.rows[self.begin], self.search.within
        deadline = None if within is None else (first.at or 0) + within
        self.end = self.begin
        self.partials.clear()
        while (
            self.end < len(self.rows)
            and self.end - self.begin < self.search.limit
            and (deadline is None or (self.rows[self.end].at or 0) <= deadline)
        ):
            self.end += 1
        is_cut = (
            self.end < len(self.rows)
            and self.end - self.begin == self.search.limit
            and (deadline is None or (self.rows[self.end].at or 0) <= deadline)
        )
        for at, taken, gap in self.ways(parse(self.search.pattern), self.begin, (), None):
            if gap is None or gap is DIRECT:
                return "match", taken
            if not any(set(row.names) & gap for row in self.rows[at : self.end]):
                return "cut_off" if is_cut else "match", taken
        if not self.partials or (within is None and not is_cut):
            return "failed", ()
        return "cut_off" if is_cut else "timed_out", self.partials[0]

    def ways(self, node: Node, at: int, taken: Taken, gap: frozenset[str] | None) -> Ways:
        if isinstance(node, Gap):
            yield at, taken, node.without if gap is None else gap | node.without
            return
        if not taken:
            # A match begins with a row that it takes.
            gap = DIRECT
        is_default = gap is None and bool(taken) and self.search.contiguity == "relaxed"
        is_unit = isinstance(node, Step) or (isinstance(node, Alternation) and not is_nullable(node))
        if is_default and is_unit:
            gap = frozenset()
        if gap is not None and gap is not DIRECT:
            yield from self.behind_gap(node, at, taken, gap)
        elif isinstance(node, Step):
            yield from self.step(node.name, at, taken)
        elif isinstance(node, InOrder):
            yield from self.one_by_one(node.items, at, taken, gap)
        elif isinstance(node, Alternation):
            for branch in node.branches:
                yield from self.ways(branch, at, taken, gap)
        else:
            yield from self.repeated(node, 0, at, taken, gap)

    def behind_gap(self, node: Node, at: int, taken: Taken, gap: frozenset[str]) -> Ways:
        while True:
            yield from self.ways(node, at, taken, DIRECT)
            if at == self.end or set(self.rows[at].names) & gap:
                return
            at += 1

    def one_by_one(self, items: tuple[Node, ...], at: int, taken: Taken, gap: frozenset[str] | None) -> Ways:
        if not items:
            yield at, taken, gap
            return
        for way in self.ways(items[0], at, taken, gap):
            yield from self.one_by_one(items[1:], *way)

    def repeated(
        self,
        node: Repeat,
        count: int,
        at: int,
        taken: Taken,
        gap: frozenset[str] | None,
    ) -> Ways:
        if not node.is_greedy and count >= node.least:
            yield at, taken, gap
        if node.most is None or count < node.most:
            for way in self.ways(node.item, at, taken, gap):
                yield from self.repeated(node, count + 1, *way)
        if node.is_greedy and count >= node.least:
            yield at, taken, gap

    def step(self, name: str, at: int, taken: Taken) -> Ways:
        if at == self.end and taken:
            self.partials.append(taken)
        elif at < self.end and name in self.rows[at].names and self.allows(name, at, taken):
            yield at + 1, (*taken, (name, at)), None

    def allows(self, name: str, at: int, taken: Taken) -> bool:
        function = self.search.functions.get(name)
        rows = [(by, {"amount": self.rows[place].amount}) for by, place in taken]
        return function is None or function({"amount": self.rows[at].amount}, MatchSoFar(rows))
