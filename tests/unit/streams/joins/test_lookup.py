"""Joins of a stream with a table, by example and against a naive reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, SourceProgress, Step
from headrace.streams.buckets.tables import KeptTables, Owner
from headrace.streams.changelog.current import KIND
from headrace.streams.changelog.unavailable import UNAVAILABLE
from headrace.streams.changelog.zset import WEIGHT
from headrace.streams.joins.asked import as_of, check_asked, wait
from headrace.streams.joins.lookup import MISSING, Lookup
from headrace.streams.joins.sides import HASH, IS_RIGHT, TIME
from headrace.streams.time.policies import bounded
from headrace.streams.windows.late import drop, side_output

EXAMPLES = 60
SECOND_US = 1_000_000
DELAY = 3
NEVER = -(10**9)
AFTER_ALL = 10**9
ROWS = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("event", pa.int64()),
        pa.field("price", pa.string()),
        pa.field(KIND, pa.string()),
        pa.field(IS_RIGHT, pa.bool_(), nullable=False),
        pa.field(HASH, pa.int64(), nullable=False),
        pa.field(TIME, pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Item:
    """An event, or a change of the table where it has a kind. Times are in seconds."""

    key: str | None
    at: int | None
    id: int = 0
    kind: str | None = None
    price: str | None = None
    weight: int | None = None

    @property
    def source(self) -> str:
        """All changes of a key are in one partition."""
        if self.kind is None:
            return "events-0"
        return f"right table-{ord(self.key[0]) % 2 if self.key else 0}"


Batch = Sequence[Item]


def arrivals_of(batch: Batch, *, is_end: bool = False, ends: dict[str, int] | None = None) -> Arrivals:
    by_source: dict[str, list[Item]] = {}
    for item in batch:
        by_source.setdefault(item.source, []).append(item)
    items = [item for source in sorted(by_source) for item in by_source[source]]
    has_weights = any(item.weight is not None for item in batch)
    columns = {
        "key": [item.key for item in items],
        "event": [None if item.kind else item.id for item in items],
        "price": [item.price for item in items],
        KIND: [item.kind for item in items],
        IS_RIGHT: [item.kind is not None for item in items],
        # A poor hash: other keys have the same.
        HASH: [ord(item.key[0]) % 2 if item.key else 42 for item in items],
        TIME: pa.array([_us(item.at) for item in items], pa.int64()).view(ROWS.field(TIME).type),
    }
    schema = ROWS
    if has_weights:
        columns[WEIGHT] = [item.weight for item in items]
        schema = ROWS.append(pa.field(WEIGHT, pa.int32()))
    progress = tuple(
        SourceProgress(
            source=source,
            row_count=len(of),
            event_time_us_max=_us(max((item.at for item in of if item.at is not None), default=None)),
            record_time_us_max=0,
        )
        for source, of in sorted(by_source.items())
    )
    rows = pa.Table.from_pydict(columns, schema=schema)
    return Arrivals(rows=rows, progress=progress, is_end=is_end, ends=ends)


def _us(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND_US


@dataclass(slots=True)
class Store:
    """A checkpoint: tables as bytes, of which a step reads what it asks for."""

    kept: dict[str, bytes] = field(default_factory=dict)

    def step(self, logic: Lookup, arrivals: Arrivals) -> Step:
        """Step twice, as after a crash; both must come to the same."""
        owner = Owner(operator="lookup", by=("key",), bucket_count=1)
        made = []
        for _ in range(2):
            tables = KeptTables(self.kept.get, self.kept.keys, owner)
            step = logic.step(tables, arrivals)
            made.append((step, tables.changes(step.state)))
        assert made[0][0].outputs == made[1][0].outputs
        assert made[0][1] == made[1][1]
        step, changes = made[0]
        for name, blob in changes.items():
            if blob is None:
                del self.kept[name]
            else:
                self.kept[name] = blob
        for name, table in step.outputs.items():
            assert table.schema == logic.output_schemas(arrivals.rows.schema)[name]
        return step


def lookup(**asked: Any) -> Lookup:
    return Lookup(
        by=("key",),
        left=("event",),
        right=("price",),
        **{
            "version": "latest",
            "stream_watermark": bounded("3 seconds"),
            "late": side_output("late"),
            **asked,
        },
    )


def given_rows(step: Step, output: str = RESULTS) -> list[tuple[Any, ...]]:
    table = step.outputs.get(output)
    names = {RESULTS: ["event", "price"], MISSING: ["event", "reason"], LATE: ["event", "reason"]}[output]
    rows = [] if table is None else [tuple(row[name] for name in names) for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row[0])


def event(key: str | None, at: int | None, number: int = 0) -> Item:
    return Item(key, at, number)


def upsert(key: str, at: int, price: str) -> Item:
    return Item(key, at, kind="upsert", price=price)


def delete(key: str, at: int) -> Item:
    return Item(key, at, kind="delete")


def truncate(at: int) -> Item:
    return Item(None, at, kind="truncate")


class Naive:
    """All that has come, joined anew each time."""

    def __init__(self, version: Any, how: str, missing: Any) -> None:
        self.version, self.how, self.missing = version, how, missing
        self.wait = None if missing is None else getattr(missing, "wait_us", None)
        self.changes: list[Item] = []
        self.pending: list[tuple[Item, bool]] = []
        self.stream = self.table = NEVER
        self.newest: dict[str, int] = {}

    def step(self, batch: Batch, *, is_end: bool, is_whole: bool) -> tuple[Counter[Any], ...]:
        before = self.stream
        self._advance(batch, is_end=is_end)
        self.changes += sorted((item for item in batch if item.kind), key=lambda item: item.source)
        is_timed = self.version != "latest"
        results: Counter[Any] = Counter()
        missing: Counter[Any] = Counter()
        late: Counter[Any] = Counter()
        pending = self.pending
        for item in batch:
            if item.kind is not None:
                continue
            if item.at is None and not is_timed:
                pending.append((replace(item, at=2 * NEVER), False))
            elif item.at is None:
                late[item.id, "no event time"] += 1
            elif is_timed and item.at < before - self.version.keep_us // SECOND_US:
                late[item.id, "late"] += 1
            else:
                pending.append((item, False))
        self.pending = []
        for item, has_waited in pending:
            self._judge(item, has_waited, is_whole, results, missing)
        return results, missing, late

    def _judge(
        self, item: Item, has_waited: bool, is_whole: bool, results: Counter[Any], missing: Counter[Any]
    ) -> None:
        assert item.at is not None
        if item.key is not None and not has_waited and not (is_whole and self._is_ready(item.at)):
            self.pending.append((item, False))
            return
        found = None if item.key is None else self._row(item.key, item.at)
        if found is not None:
            results[item.id, found.price] += 1
        elif item.key and self.wait is not None and item.at >= self.stream - self.wait // SECOND_US:
            self.pending.append((item, True))
        elif self.how == "left":
            results[item.id, None] += 1
        elif self.missing is not drop:
            missing[item.id, "no row" if item.key else "no key"] += 1

    def _advance(self, batch: Batch, *, is_end: bool) -> None:
        for item in batch:
            if item.at is not None:
                self.newest[item.source] = max(self.newest.get(item.source, NEVER), item.at)
        events = [at for source, at in self.newest.items() if source == "events-0"]
        tables = [at for source, at in self.newest.items() if source != "events-0"]
        self.stream = AFTER_ALL if is_end else max(self.stream, *(at - DELAY for at in events), NEVER)
        self.table = AFTER_ALL if is_end else max(self.table, min(tables, default=NEVER))

    def _is_ready(self, at: int) -> bool:
        if self.version == "latest" or self.version.wait_us is None:
            return True
        return at < self.table or at <= self.stream - self.version.wait_us // SECOND_US

    def _row(self, key: str, at: int) -> Item | None:
        current, since = None, NEVER
        for change in self.changes:
            if change.key is not None and change.key != key:
                continue
            assert change.at is not None
            starts = max(since, change.at)
            if self.version != "latest" and starts > at:
                if change.kind == "truncate" and current is None:
                    continue
                return current
            if change.kind == "truncate" and current is None:
                continue
            current, since = (change if change.kind == "upsert" else None), starts
        return current


keys = st.sampled_from(["a", "b", "c"])
changes = st.one_of(
    st.builds(upsert, keys, st.integers(0, 40), st.sampled_from(["1", "2", "3"])),
    st.builds(upsert, keys, st.integers(0, 40), st.sampled_from(["1", "2", "3"])),
    st.builds(delete, keys, st.integers(0, 40)),
)
events = st.builds(
    event, st.one_of(keys, keys, st.none()), st.one_of(st.integers(0, 40), st.integers(0, 40), st.none())
)
streams = st.lists(st.lists(st.one_of(changes, events), max_size=10), min_size=1, max_size=14)


def drifted(batches: list[list[Item]]) -> list[list[Item]]:
    """Times go on from batch to batch, and overlap; events have numbers."""
    numbers = iter(range(10_000))
    return [
        [
            Item(
                item.key,
                None if item.at is None else item.at + 6 * place,
                next(numbers),
                item.kind,
                item.price,
            )
            for item in batch
        ]
        for place, batch in enumerate(batches)
    ]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    batches=streams.map(drifted),
    version=st.sampled_from(["latest", as_of(keep="20 seconds"), as_of(keep="20 seconds", wait="5 seconds")]),
    asked=st.one_of(
        st.tuples(st.just("left"), st.sampled_from([None, wait("15 seconds")])),
        st.tuples(
            st.just("inner"),
            st.sampled_from([drop, side_output("t"), wait("15 seconds", then=side_output("t"))]),
        ),
    ),
    whole_at=st.integers(0, 4),
    ends=st.booleans(),
)
def test_a_join_gives_what_a_look_at_all_that_has_come_gives(
    batches: list[list[Item]], version: Any, asked: tuple[Any, Any], whole_at: int, ends: bool
) -> None:
    how, missing = asked
    logic = lookup(version=version, how=how, missing=missing, table_ends={"table-0": 10})
    naive, store = Naive(version, how, missing), Store()
    for place, batch in enumerate(batches):
        is_end = ends and place == len(batches) - 1
        is_whole = place >= whole_at
        arrivals = arrivals_of(batch, is_end=is_end, ends={"table-0": 10 if is_whole else 9})
        step = store.step(logic, arrivals)
        expected = naive.step(batch, is_end=is_end, is_whole=is_whole)
        found = tuple(Counter(given_rows(step, output)) for output in (RESULTS, MISSING, LATE))
        assert found == expected, place


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(batches=streams.map(drifted), truncated=st.lists(st.integers(0, 100), max_size=3))
def test_a_truncation_ends_all_rows_from_its_time_on(batches: list[list[Item]], truncated: list[int]) -> None:
    for version in ("latest", as_of(keep="100 days")):
        logic = lookup(version=version, how="left")
        naive, store = Naive(version, "left", None), Store()
        for place, batch in enumerate(batches):
            # One partition: truncations have an order with all changes.
            own = [item for item in batch if item.key != "a" or item.kind is None]
            with_them = [*own, *(truncate(at) for at in truncated if at % len(batches) == place)]
            items = [
                Item(
                    "b" if item.key == "c" and item.kind else item.key,
                    item.at,
                    item.id,
                    item.kind,
                    item.price,
                )
                for item in with_them
            ]
            step = store.step(logic, arrivals_of(items))
            assert Counter(given_rows(step)) == naive.step(items, is_end=False, is_whole=True)[0]


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(batches=streams.map(drifted))
def test_as_of_all_cuts_into_micro_batches_give_the_same_if_the_table_is_ahead(
    batches: list[list[Item]],
) -> None:
    logic = lookup(version=as_of(keep="100 days"), how="left", late=drop)
    table = [item for batch in batches for item in batch if item.kind]
    rest = [[item for item in batch if item.kind is None] for batch in batches]
    at_once = Store().step(logic, arrivals_of([*table, *(item for batch in rest for item in batch)]))
    store = Store()
    store.step(logic, arrivals_of(table))
    cut = [row for batch in rest for row in given_rows(store.step(logic, arrivals_of(batch)))]
    assert Counter(cut) == Counter(given_rows(at_once))


def test_a_delete_ends_a_row_and_an_insert_begins_it_anew() -> None:
    store, logic = Store(), lookup(version=as_of(keep="1 hour"), how="left")
    store.step(logic, arrivals_of([upsert("a", 10, "1"), delete("a", 20), upsert("a", 30, "2")]))
    step = store.step(logic, arrivals_of([event("a", at, at) for at in (9, 10, 19, 20, 29, 30)]))
    assert given_rows(step) == [(9, None), (10, "1"), (19, "1"), (20, None), (29, None), (30, "2")]


def test_a_change_that_claims_to_be_older_takes_the_place_of_the_one_before_it() -> None:
    store, logic = Store(), lookup(version=as_of(keep="1 hour"), how="left")
    store.step(logic, arrivals_of([upsert("a", 10, "1")]))
    store.step(logic, arrivals_of([upsert("a", 5, "2")]))
    assert given_rows(store.step(logic, arrivals_of([event("a", 7, 7), event("a", 10, 10)]))) == [
        (7, None),
        (10, "2"),
    ]


def test_a_value_that_was_not_sent_is_the_one_that_is_known() -> None:
    store, logic = Store(), lookup(version=as_of(keep="1 hour"), how="left")
    store.step(logic, arrivals_of([upsert("a", 1, "1")]))
    step = store.step(logic, arrivals_of([upsert("a", 2, UNAVAILABLE), upsert("b", 2, UNAVAILABLE)]))
    assert step.counts["unavailable"] == 1
    step = store.step(logic, arrivals_of([event("a", 3, 1), event("b", 3, 2)]))
    assert given_rows(step) == [(1, "1"), (2, None)]


def test_versions_that_nobody_asks_for_are_forgotten_but_for_the_newest() -> None:
    store, logic = Store(), lookup(version=as_of(keep="20 seconds"), how="left")
    for second in range(200):
        key = "a" if second % 2 else "b"
        store.step(logic, arrivals_of([upsert(key, second, str(second)), event("c", second)]))
    tables = KeptTables(store.kept.get, store.kept.keys, Owner(operator="", by=(), bucket_count=1))
    rows = sum(row["rows"] for row in tables["table.runs"].to_pylist())
    assert rows < 60
    step = store.step(logic, arrivals_of([event("a", 180, 1), event("b", 199, 2)]))
    assert given_rows(step) == [(1, "179"), (2, "198")]


def change(key: str | None, price: str, weight: int) -> Item:
    return Item(key, None, kind="upsert" if weight > 0 else "delete", price=price, weight=weight)


def test_a_changelog_says_what_the_rows_are_in_the_end() -> None:
    store, logic = Store(), lookup(how="left", stream_watermark=None)
    store.step(logic, arrivals_of([change("a", "1", 1), change("b", "1", 1)]))
    store.step(logic, arrivals_of([change("a", "2", 1), change("a", "1", -1), change("b", "1", -1)]))
    step = store.step(logic, arrivals_of([event("a", None, 1), event("b", None, 2)]))
    assert given_rows(step) == [(1, "2"), (2, None)]


def test_an_update_in_a_changelog_may_come_in_two_micro_batches() -> None:
    store, logic = Store(), lookup(how="left", stream_watermark=None)
    store.step(logic, arrivals_of([change("a", "old", 1), change("c", "other", 1)]))
    step = store.step(logic, arrivals_of([change("a", "old", -1), event("a", None, 1)]))
    assert given_rows(step) == [(1, None)]
    step = store.step(logic, arrivals_of([change("a", "new", 1), event("a", None, 2), event("c", None, 3)]))
    assert given_rows(step) == [(2, "new"), (3, "other")]
    assert "unmatched" not in step.counts


def test_a_key_of_a_changelog_that_has_two_rows_is_refused_though_they_did_not_come_together() -> None:
    store, logic = Store(), lookup(how="left", stream_watermark=None)
    store.step(logic, arrivals_of([change("a", "old", 1)]))
    with pytest.raises(PipelineError, match=r"hr\.lookup: the table has 2 rows of the key \{'key': 'a'\}"):
        store.step(logic, arrivals_of([change("a", "new", 1)]))
    # The other half of the update, before it is tried again.
    store.step(logic, arrivals_of([change("a", "new", 1), change("a", "old", -1)]))
    assert given_rows(store.step(logic, arrivals_of([event("a", None, 1)]))) == [(1, "new")]


def test_a_row_that_goes_from_a_changelog_without_being_there_takes_no_other_with_it() -> None:
    store, logic = Store(), lookup(how="left", stream_watermark=None)
    store.step(logic, arrivals_of([change("a", "new", 1), change(None, "x", 1), change(None, "y", 1)]))
    step = store.step(logic, arrivals_of([change("a", "old", -1), event("a", None, 1)]))
    assert given_rows(step) == [(1, "new")]
    assert step.counts == {"unmatched": 1}


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(updates=st.lists(st.tuples(keys, st.sampled_from([None, "1", "2"])), max_size=20), random=st.randoms())
def test_a_changelog_gives_the_same_table_however_it_is_cut(
    updates: list[tuple[str, str | None]], random: Random
) -> None:
    store, logic = Store(), lookup(how="left", stream_watermark=None)
    rows: dict[str, str] = {}
    batch: list[Item] = []
    for number, (key, price) in enumerate(updates):
        changes = [change(key, rows.pop(key), -1)] if key in rows else []
        if price is not None:
            rows[key] = price
            changes.append(change(key, price, 1))
        for each in changes:
            batch.append(each)
            if random.random() < 0.3:
                assert not store.step(logic, arrivals_of(batch)).counts
                batch = []
        step = store.step(logic, arrivals_of([*batch, event(key, None, number)]))
        assert given_rows(step) == [(number, rows.get(key))]
        batch = []


def test_events_without_a_row_are_counted_where_they_are_dropped() -> None:
    step = Store().step(lookup(missing=drop), arrivals_of([event("a", 1), event(None, 1)]))
    assert given_rows(step) == []
    assert step.counts == {"missing": 2, "dropped": 2}


@pytest.mark.parametrize(
    ("version", "how", "missing", "told"),
    [
        ("newest", "inner", None, 'use "latest", or hr.as_of'),
        ("latest", "full", None, "use inner, or left"),
        ("latest", "inner", "null", "use hr.wait"),
        ("latest", "left", side_output("t"), "gives events that have no row"),
        (as_of(keep="1 minute"), "inner", wait("1 hour"), "keep them at least as long"),
    ],
)
def test_what_contradicts_itself_is_refused(version: Any, how: Any, missing: Any, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        check_asked("hr.lookup", version, how, missing)


def test_late_events_can_not_be_sent_elsewhere_where_none_is_late() -> None:
    with pytest.raises(PipelineError, match="no event is late for the row as it is"):
        check_asked("hr.lookup", "latest", "inner", wait("1 hour"), drop)
    check_asked("hr.lookup", as_of(keep="1 hour"), "inner", None, drop)


def test_an_event_without_a_time_gets_the_latest_row_and_does_not_wait() -> None:
    store, logic = Store(), lookup(missing=wait("1 hour", then=side_output("t")), table_ends={"table-0": 1})
    assert not given_rows(store.step(logic, arrivals_of([event("a", None, 1)], ends={"table-0": 0})))
    step = store.step(logic, arrivals_of([upsert("a", 1, "1"), event("a", None, 2), event("b", None, 3)]))
    assert given_rows(step) == [(1, "1"), (2, "1")]
    assert given_rows(step, MISSING) == [(3, "no row")]
    assert step.counts == {"missing": 1, "released": 1}


def test_events_that_are_held_until_the_table_is_whole_are_told() -> None:
    store, logic = Store(), lookup(how="left", table_ends={"table-0": 2})
    told = [
        store.step(logic, arrivals_of([event("a", 1, 1), event("a", 1, 2)], ends={"table-0": 0})).counts,
        store.step(logic, arrivals_of([event("a", 2, 3)], ends={"table-0": 1})).counts,
        store.step(logic, arrivals_of([upsert("a", 1, "1"), event("a", 3, 4)], ends={"table-0": 2})).counts,
        store.step(logic, arrivals_of([event("a", 4, 5)], ends={"table-0": 2})).counts,
    ]
    assert told == [{"held": 2}, {"held": 1}, {"released": 3}, {}]


def test_versions_must_be_kept_for_as_long_as_events_wait() -> None:
    with pytest.raises(PipelineError, match="keep them at least as long"):
        as_of(keep="1 minute", wait="2 minutes")


def test_an_event_that_has_waited_is_given_once() -> None:
    store, logic = Store(), lookup(missing=wait("1 hour"))
    store.step(logic, arrivals_of([event("a", 1, 1), event("c", 1, 2)]))
    assert given_rows(store.step(logic, arrivals_of([upsert("a", 2, "1")]))) == [(1, "1")]
    assert given_rows(store.step(logic, arrivals_of([upsert("c", 2, "2"), upsert("a", 2, "3")]))) == [
        (2, "2")
    ]
