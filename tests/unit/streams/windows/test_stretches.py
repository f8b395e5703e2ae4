"""Stretches of panes are merged to what their panes give, in order, however much they overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.streams.windows import stretches as module
from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.stretches import Stretches


@dataclass(frozen=True)
class Text:
    """Puts texts one behind the other, so that the order of merging shows."""

    name: str = "text"

    def result_type(self, rows: pa.Schema) -> pa.DataType:
        return rows.field("text").type

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:
        return (self.result_type(rows),)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        return self.merge((rows["text"].combine_chunks(),), starts)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        runs = np.split(np.array(partials[0].to_pylist(), dtype=object), starts[1:])
        return (pa.array(["".join(run) for run in runs if len(run)], pa.string()),)

    def finish(self, partials: Partials) -> pa.Array:
        return partials[0]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """How many panes each key has, and stretches as the first pane and the one behind the last."""
    counts = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    found = []
    for _ in range(draw(st.integers(1, 30))):
        key = draw(st.integers(0, len(counts) - 1))
        first = draw(st.integers(0, counts[key] - 1))
        end = draw(st.integers(first + 1, counts[key]))
        found.append((sum(counts[:key]) + first, sum(counts[:key]) + end))
    return counts, found


@pytest.mark.parametrize(("overlap_min", "pieces_max"), [(0, 100), (4, 7), (1_000, 1)])
@settings(max_examples=40)
@given(case=cases())
def test_a_stretch_gives_all_its_panes_in_order(
    case: tuple[list[int], list[tuple[int, int]]], overlap_min: int, pieces_max: int
) -> None:
    counts, bounds = case
    names = [f"{key}.{place} " for key, count in enumerate(counts) for place in range(count)]
    firsts, ends = (np.array(side) for side in zip(*bounds, strict=True))
    stretches = Stretches(
        keys=np.repeat(np.arange(len(counts)), counts), firsts=firsts, lengths=ends - firsts
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_OVERLAP_MIN", overlap_min)
        patch.setattr(module, "PIECES_MAX", pieces_max)
        ((merged,),) = stretches.merged([Text()], [(pa.array(names),)])
        greatest = stretches.greatest(np.arange(len(names)))
    assert merged.to_pylist() == ["".join(names[first:end]) for first, end in bounds]
    assert greatest.tolist() == [end - 1 for _, end in bounds]
