"""Events folded by stream, in pieces: the same states whatever the pieces are, and nothing missed."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.events import Decider, Written, decider, event, fold, upcast
from headrace.events.folding import Folding
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step
from headrace.streams.keyed.prefold import Prefold
from headrace.streams.keyed.project import FOLDED, STATE, Project


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    amount: int


@event("Renamed", version=2, personal={"name"}, subject="owner")
@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    owner: str
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    total: int
    names: tuple[str | None, ...] = ()


def twice(data: dict[str, Any]) -> list[Written]:
    return [Written("Added", 1, data), Written("Added", 1, data)]


@decider("sum")
class Sums:
    initial = Nothing()
    upcasts = (
        upcast(
            "AddedTwice",
            1,
            twice,
            leads_to=[("Added", 1)],
        ),
    )

    @staticmethod
    def decide(_state: Nothing | Sum, _command: object) -> list[Added | Renamed]:
        return []

    @staticmethod
    def evolve(state: Nothing | Sum, event: Added | Renamed) -> Nothing | Sum:
        before = state if isinstance(state, Sum) else Sum(total=0)
        if isinstance(event, Added):
            if event.amount == 666:
                raise ArithmeticError("not that one")
            return Sum(total=before.total + event.amount, names=before.names)
        return Sum(total=before.total, names=(*before.names, event.name))


RETURNS = pa.schema([("total", pa.int64())])
LOGIC = Project(by="stream", key=pa.string(), fold=Folding(Sums), returns=RETURNS)
SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("version", pa.int64()),
        ("type", pa.string()),
        ("schema_version", pa.int32()),
        ("data", pa.binary()),
    ]
)


def row(stream: str | None, version: int | None, amount: int, kind: str = "Added") -> dict[str, Any]:
    data = msgspec.json.encode({"amount": amount})
    return {"stream": stream, "version": version, "type": kind, "schema_version": 1, "data": data}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def results(step: Step) -> dict[str | None, tuple[int, int]]:
    made = step.outputs.get(RESULTS)
    rows = [] if made is None else made.to_pylist()
    assert len({each["stream"] for each in rows}) == len(rows)
    return {each["stream"]: (each["version"], each["total"]) for each in rows}


@settings(max_examples=150, deadline=None)
@given(
    amounts=st.lists(st.tuples(st.sampled_from(["a", "b", None, "ü"]), st.integers(-9, 9)), max_size=30),
    data=st.data(),
)
def test_states_are_those_of_a_whole_fold_wherever_batches_are_cut_and_whatever_is_read_again(
    amounts: list[tuple[str | None, int]], data: st.DataObject
) -> None:
    versions: dict[str | None, int] = {}
    rows = []
    for stream, amount in amounts:
        versions[stream] = versions.get(stream, 0) + 1
        rows.append(row(stream, versions[stream], amount))
    state: dict[str, pa.Table] = {}
    shown: dict[str | None, tuple[int, int]] = {}
    done, repeats, again_count = 0, 0, 0
    while done < len(rows):
        size = data.draw(st.integers(1, 8))
        again = data.draw(st.integers(0, min(done, 4)))
        again_count += again
        # Partitions may bring the streams of a batch in any order.
        batch = data.draw(st.permutations(rows[done - again : done + size]))
        step = LOGIC.step(state, Arrivals(rows=table(*batch)))
        state = dict(step.state)
        shown |= results(step)
        repeats += step.counts.get("repeats", 0)
        done += size
    expected = {
        stream: (
            len(own := [amount for each, amount in amounts if each == stream]),
            [*accumulate(own)][-1],
        )
        for stream in versions
    }
    assert shown == expected
    assert repeats == again_count
    assert len(state[FOLDED]) == len(versions) if rows else not state
    in_batch = LOGIC.step({}, Arrivals(rows=table(*rows), is_end=True))
    assert results(in_batch) == expected
    assert in_batch.state == {}
    # Tasks may have read any share of the events, in any pieces, and fold what they can before.
    shares: list[list[dict[str, Any]]] = [[], [], []]
    for each in rows:
        shares[data.draw(st.integers(0, 2))].append(each)
    pieces = [
        piece
        for share in shares
        for piece in Prefold(by="stream", fold=Folding(Sums), schema=SCHEMA).run(
            iter(table(*share).to_batches())
        )
    ]
    if pieces:
        prefolded = LOGIC.step({}, Arrivals(rows=pa.Table.from_batches(pieces), is_end=True))
        assert results(prefolded) == expected
    assert bool(pieces) == bool(rows)


@pytest.mark.parametrize("versions", [[2], [1, 3], [1, 1, 3], [1, 2, 2, 4]])
def test_an_event_that_is_missing_stops_the_fold(versions: list[int]) -> None:
    with pytest.raises(PipelineError, match=f"events of 'a' are missing: version {versions[-1]} follows on"):
        LOGIC.step({}, Arrivals(rows=table(*(row("a", version, 1) for version in versions))))


def test_an_event_that_is_missing_between_batches_stops_the_fold() -> None:
    first = LOGIC.step({}, Arrivals(rows=table(row("a", 1, 1))))
    with pytest.raises(PipelineError, match="events of 'a' are missing: version 3 follows on 1"):
        LOGIC.step(first.state, Arrivals(rows=table(row("a", 3, 1))))


def test_a_task_that_has_a_stream_from_its_beginning_sends_its_state_and_no_event() -> None:
    rows = table(*(row("a", version, version) for version in range(1, 50)), row("b", 7, 1), row("b", 8, 1))
    made = pa.Table.from_batches(
        Prefold(by="stream", fold=Folding(Sums), schema=SCHEMA).run(iter(rows.to_batches(max_chunksize=9)))
    )
    told = [(each["stream"], each["version"], each["type"]) for each in made.to_pylist()]
    assert sorted(told) == [("a", 49, STATE), ("b", 7, "Added"), ("b", 8, "Added")]
    with pytest.raises(PipelineError, match="events of 'b' are missing: version 7 follows on 0"):
        LOGIC.step({}, Arrivals(rows=made, is_end=True))


def test_a_batch_without_rows_keeps_what_is_kept_as_it_is() -> None:
    first = LOGIC.step({}, Arrivals(rows=table(row("a", 1, 1))))
    second = LOGIC.step(first.state, Arrivals(rows=table()))
    assert second.state[FOLDED] is first.state[FOLDED]
    assert not second.outputs


def test_old_versions_are_upcast_and_personal_fields_read_as_forgotten() -> None:
    sealed = {"owner": "o", "name": {"$sealed": "AAAA", "subject": "o"}}
    rows = table(
        row("a", 1, 3, kind="AddedTwice"),
        {**row("a", 2, 0), "type": "Renamed", "schema_version": 2, "data": msgspec.json.encode(sealed)},
    )
    logic = Project(
        by="stream",
        key=pa.string(),
        fold=Folding(Sums),
        returns=pa.schema([("total", pa.int64()), ("names", pa.int64())]),
        row=lambda state: {"total": state.total, "names": len(state.names)},
    )
    made = logic.step({}, Arrivals(rows=rows)).outputs[RESULTS].to_pylist()
    assert made == [{"stream": "a", "version": 2, "total": 6, "names": 1}]


def test_an_event_that_evolve_fails_at_names_its_stream_and_place() -> None:
    with pytest.raises(
        PipelineError, match=r"test_project.py:\d+: ArithmeticError: not that one \(stream 'b'"
    ):
        LOGIC.step({}, Arrivals(rows=table(row("a", 1, 1), row("b", 1, 666))))


def test_a_row_that_is_no_event_is_refused() -> None:
    with pytest.raises(PipelineError, match="a row has no version, so it is no event"):
        LOGIC.step({}, Arrivals(rows=table(row("a", None, 1))))
    with pytest.raises(PipelineError, match="UnreadableEvents"):
        LOGIC.step({}, Arrivals(rows=table(row("a", 1, 1, kind="Unknown"))))


def test_a_fold_travels_and_states_are_read_back_as_they_were() -> None:
    there = pickle.loads(pickle.dumps(Folding(Sums)))  # noqa: S301 - our own, from above
    for state in (Nothing(), Sum(total=3, names=("a", None))):
        assert there.read_state(there.write_state(state)) == state
    assert there.evolve(there.initial, Added(amount=2)) == fold(cast("Decider", Sums), [Added(amount=2)])
