"""What is kept of a pipeline beside its checkpoint: its plan, and by which code it was run, and how.

DATA/plans/<query>.json    {"plan": {...}, "runs": [{"code": "...", "since_batch": 0, ...}, ...]}

It is written when a pipeline starts, before Spark does, and counts for as long as the checkpoint has a
batch. `runs` gets a new entry only when something in it has changed, and keeps the last RUNS_MAX. A start
that came to no batch left nothing behind and is forgotten. Real-time mode writes down that a batch was begun
when it ends, so there it can't be told, and the start is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from headrace.config import StreamsConfig
from headrace.streams.kept import read_kept, write_kept
from headrace.streams.plans import Description

RUNS_MAX: Final = 100
"""How many changes of code or guarantee are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a pipeline ran from a batch on."""

    since_batch: int
    code: str | None
    """The fingerprint of its code; None where it could not be read."""
    realtime: bool
    guarantee: str

    def is_as(self, other: Run) -> bool:
        """Whether nothing has changed but the time."""
        return replace(self, since_batch=other.since_batch) == other


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is kept of a pipeline."""

    plan: Description
    runs: tuple[Run, ...]

    def with_run(self, plan: Description, run: Run, *, is_begun: bool) -> History:
        """The history when the pipeline is about to run so.

        `is_begun` says whether the batch that comes next was begun before, and may be written in part.
        """
        if self.runs and run.is_as(self.runs[-1]):
            return History(plan=plan, runs=self.runs)
        earlier = tuple(
            each for each in self.runs if is_begun or each.realtime or each.since_batch < run.since_batch
        )
        return History(plan=plan, runs=(*earlier, run)[-RUNS_MAX:])


def history_path(config: StreamsConfig, query: str) -> Path:
    """Where the query's history is kept."""
    return config.data_dir.absolute() / "plans" / f"{query}.json"


def read_history(config: StreamsConfig, query: str) -> History | None:
    """The query's history; None if nothing was kept."""
    return read_kept(
        history_path(config, query),
        from_json,
        problem="does not say how its pipeline was run",
        advice="remove it if the pipeline has not changed since",
    )


def from_json(content: Mapping[str, Any]) -> History:
    """What `to_json` gave."""
    runs = tuple(
        Run(
            since_batch=int(run["since_batch"]),
            code=run["code"],
            realtime=bool(run["realtime"]),
            guarantee=str(run["guarantee"]),
        )
        for run in content["runs"]
    )
    return History(plan=Description.from_json(content["plan"]), runs=runs)


def to_json(history: History) -> dict[str, Any]:
    """As it is kept."""
    return {"plan": history.plan.to_json(), "runs": [asdict(run) for run in history.runs]}


def write_history(config: StreamsConfig, query: str, history: History) -> None:
    """Keep it, whole or not at all."""
    write_kept(history_path(config, query), to_json(history))
