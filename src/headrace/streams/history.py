"""What is kept of a pipeline beside its checkpoint: its plan, and by which code it was run, and how.

DATA/plans/<query>.json    {"plan": {...}, "runs": [{"code": "...", "since_batch": 0, ...}, ...]}

It is written when a pipeline starts, before Spark does, and counts for as long as the checkpoint has a
batch. `runs` gets a new entry only when something in it has changed, and keeps the last RUNS_MAX.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from headrace.config import StreamsConfig
from headrace.errors import ConfigError
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

    def with_run(self, plan: Description, run: Run) -> History:
        """The history when the pipeline is about to run so."""
        if self.runs and run.is_as(self.runs[-1]):
            return History(plan=plan, runs=self.runs)
        # A start that came to no batch left nothing behind.
        earlier = tuple(each for each in self.runs if each.since_batch < run.since_batch)
        return History(plan=plan, runs=(*earlier, run)[-RUNS_MAX:])


def history_path(config: StreamsConfig, query: str) -> Path:
    """Where the query's history is kept."""
    return config.data_dir.absolute() / "plans" / f"{query}.json"


def read_history(config: StreamsConfig, query: str) -> History | None:
    """The query's history; None if nothing was kept."""
    path = history_path(config, query)
    try:
        return from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} does not say how its pipeline was run ({type(error).__name__}: {error}): remove it if "
            "the pipeline has not changed since"
        ) from error


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
    path = history_path(config, query)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}~")
    with new.open("w") as file:
        json.dump(to_json(history), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
