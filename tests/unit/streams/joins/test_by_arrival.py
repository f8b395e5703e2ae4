"""A stream's micro-batches, stepped through once more in one step."""

from __future__ import annotations

import pyarrow as pa

from headrace.streams.buckets.logic import RESULTS, Arrivals, SourceProgress, Step, Tables
from headrace.streams.joins.by_arrival import BATCH, ByArrival


class Sums:
    """Gives the sum so far, the ends that it is told, and what it has kept."""

    def output_schemas(self, _rows: pa.Schema) -> dict[str, pa.Schema]:
        return {RESULTS: pa.schema({"sum": pa.int64(), "end": pa.int64(), "kept": pa.string()})}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        before = state["sum"]["sum"][0].as_py() if "sum" in state else 0
        total = before + sum(arrivals.rows["number"].to_pylist())
        kept = ",".join(sorted(state))
        state.get("once")
        row = {"sum": total, "end": (arrivals.ends or {}).get("a-0"), "kept": kept}
        named = f"batch-{len(state)}"
        return Step(
            state={"sum": pa.table({"sum": [total]}), named: pa.table({})}
            | ({} if state else {"once": pa.table({})}),
            outputs={
                RESULTS: pa.Table.from_pylist([row], self.output_schemas(arrivals.rows.schema)[RESULTS])
            },
        )


def test_each_micro_batch_finds_what_those_before_it_have_kept() -> None:
    rows = pa.table({"number": [1, 2, 3, 4], BATCH: [1, 2, 1, 4]})
    told = (SourceProgress(source="a-0", row_count=1),)
    logic = ByArrival(
        logic=Sums(), progress={4: told, 1: told, 2: told}, ends={1: {"a-0": 10}, 4: {"a-0": 40}}
    )
    found = logic.step({}, Arrivals(rows=rows)).outputs[RESULTS].to_pylist()
    assert [(row["sum"], row["end"]) for row in found] == [(4, 10), (6, None), (10, 40)]
    # What was read and not given back is gone; what was not read stays.
    assert [row["kept"] for row in found] == ["", "batch-0,once,sum", "batch-0,batch-3,sum"]
