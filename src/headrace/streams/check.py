"""Can this code go on from this checkpoint? What `headrace check` asks, and `headrace run` before it starts.

Spark compares types only. A pipeline whose sums have become maxima would go on, and be wrong from then on;
so the plan that a checkpoint was made with is kept beside it, and compared with the one that is to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.config import StreamsConfig
from headrace.errors import BrokerUnavailable, PipelineError
from headrace.streams.admin import identify
from headrace.streams.building import build_stream
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.code import fingerprint
from headrace.streams.describe import describe_rows
from headrace.streams.failure import first_line
from headrace.streams.history import History, Run, read_history, write_history
from headrace.streams.origin import Origin, kept_difference
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import Plan, make_plan
from headrace.streams.plans import Change, Description, changes
from headrace.streams.progress_log import has_batch, read_progress_log
from headrace.streams.session import start_session, stop_session
from headrace.streams.source import Reader, read_stream
from headrace.streams.topic import Topic
from headrace.streams.workspace import workspace

_SLOTS: Final = 1
"""Nothing is run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether a pipeline can go on from its checkpoint."""

    pipeline: str
    is_new: bool
    """Whether it has no checkpoint, and would start anew."""
    changes: tuple[Change, ...]

    @property
    def can_go_on(self) -> bool:
        """Whether nothing breaks."""
        return not any(change.breaking for change in self.changes)

    def __str__(self) -> str:
        if self.is_new:
            return f"{self.pipeline} has no checkpoint: it starts anew"
        told = "; ".join(str(change) for change in self.changes)
        if self.can_go_on:
            return f"{self.pipeline} can go on from its checkpoint" + (f" ({told})" if told else "")
        breaking = "; ".join(str(change) for change in self.changes if change.breaking)
        return f"{self.pipeline} can't go on from its checkpoint: {breaking}"


def check(pipelines: Sequence[Pipeline[Any]], config: StreamsConfig) -> list[Answer]:
    """Ask for each of the pipelines. Changes nothing."""
    plan = make_plan(pipelines)
    if not any(has_batch(checkpoint_path(config, name)) for name in plan.names):
        return [Answer(pipeline=name, is_new=True, changes=()) for name in plan.names]
    origin = _find_origin(plan, config)
    with ExitStack() as held:
        work_dir = held.enter_context(workspace(config.data_dir))
        session = start_session(config, slots=_SLOTS, work_dir=work_dir)
        held.callback(stop_session, session)
        return check_in(session, plan, config, origin=origin)


def check_in(
    session: SparkSession, plan: Plan, config: StreamsConfig, *, origin: Origin | None
) -> list[Answer]:
    """The same in a session that runs already. Without an origin, topics are taken to be the same."""
    answers = []
    for pipeline in plan.pipelines:
        if not has_batch(checkpoint_path(config, pipeline.name)):
            answers.append(Answer(pipeline=pipeline.name, is_new=True, changes=()))
            continue
        found = _origin_changes(config, pipeline.name, plan, origin)
        now = describe_pipeline(session, pipeline, plan.sources[pipeline.name], config)
        answers.append(
            Answer(
                pipeline=pipeline.name,
                is_new=False,
                changes=(*found, *_plan_changes(config, pipeline.name, now)),
            )
        )
    return answers


def describe_pipeline(
    session: SparkSession, pipeline: Pipeline[Any], sources: Mapping[str, Topic], config: StreamsConfig
) -> Description:
    """What the pipeline would be run as."""
    frames = {
        parameter: read_stream(session, topic, Reader(name=pipeline.name, config=config))
        for parameter, topic in sources.items()
    }
    try:
        rows, built = build_stream(pipeline, frames, config)
        return describe_rows(rows, frames, sources, config, built.operators)
    except AnalysisException as error:
        raise PipelineError(f"pipeline {pipeline.name} can't run: {first_line(error)}") from error


def keep_plan(config: StreamsConfig, pipeline: Pipeline[Any], plan: Description, *, realtime: bool) -> None:
    """Refuse to go on from a checkpoint that does not fit; else note down what is about to run."""
    query = pipeline.name
    checkpoint = checkpoint_path(config, query)
    is_new = not has_batch(checkpoint)
    if not is_new:
        answer = Answer(pipeline=query, is_new=False, changes=tuple(_plan_changes(config, query, plan)))
        if not answer.can_go_on:
            raise PipelineError(str(answer))
    log = None if is_new else read_progress_log(checkpoint)
    run = Run(
        since_batch=0 if log is None else log.next_batch,
        code=fingerprint(pipeline.function),
        realtime=realtime,
        guarantee=config.guarantee_of(realtime=realtime),
    )
    # Real-time mode has written before its first batch is noted down: what Spark has begun counts.
    kept = read_history(config, query) if (checkpoint / "metadata").exists() else None
    is_begun = log is not None and any(batch.number >= log.next_batch for batch in log.batches)
    history = History(plan=plan, runs=(run,)) if kept is None else kept.with_run(plan, run, is_begun=is_begun)
    write_history(config, query, history)


def _plan_changes(config: StreamsConfig, query: str, now: Description) -> list[Change]:
    kept = read_history(config, query)
    if kept is None:
        return [
            Change(
                what="with which plan the checkpoint was made was not noted down",
                breaking=False,
                advice="Spark itself will compare the types of its state, and nothing else",
            )
        ]
    return changes(kept.plan, now)


def _find_origin(plan: Plan, config: StreamsConfig) -> Origin | None:
    try:
        return identify(config, plan.source_names)
    except BrokerUnavailable:
        return None


def _origin_changes(config: StreamsConfig, query: str, plan: Plan, origin: Origin | None) -> list[Change]:
    if origin is None:
        return [
            Change(
                what=f"no broker answers at {config.bootstrap}",
                breaking=False,
                advice="whether the topics are still the same was not looked at",
            )
        ]
    changed = kept_difference(config, query, origin.of(plan.topics_of(query)))
    if changed is None:
        return []
    return [
        Change(
            what=f"its offsets are those of {changed}",
            breaking=True,
            advice=f"use another --data, or remove {checkpoint_path(config, query)} to start anew",
        )
    ]
