"""Run a pipeline from the past to the present on the checkpoint that `headrace run` goes on from.

Nothing is left out between the two, and nothing is read twice, because it is one checkpoint. With `swap`, the
new one takes the place of an old one, and the new results that of the old:

    1  note down where the new results begin: the present end of each topic that is written
    2  put the old checkpoint aside, into DATA/replaced/
    3  replay, each result exactly once, behind the old results
    4  delete the old results

Readers see old results, then new ones behind them, then new ones only. After a crash at any of these points,
the same call goes on (see replay_note.py); until then, `headrace run` is refused.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from pyspark.sql import SparkSession

from headrace.config import StreamsConfig
from headrace.errors import ConfigError, FaultError, PipelineError
from headrace.streams.admin import ANSWER_S_MAX, Cluster, ensure_topics, identify
from headrace.streams.checkpoint import checkpoint_path, lock_checkpoint
from headrace.streams.code import fingerprint
from headrace.streams.log_offsets import end_offsets, existing_places
from headrace.streams.origin import keep_origin
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import Plan, make_plan
from headrace.streams.progress_log import Offsets, has_batch, read_progress_log
from headrace.streams.queries import Queries
from headrace.streams.replay_note import ReplayNote, note_path, read_note, remove_note, write_note
from headrace.streams.results_topic import results_topic
from headrace.streams.session import start_session, stop_session
from headrace.streams.spans import OPEN, Bound
from headrace.streams.topic import Start, Topic
from headrace.streams.workspace import workspace

REPLAY_S_MAX: Final = 30 * 24 * 3600.0
"""How long a replay may take."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WentLive:
    """What was done."""

    batch_count: int
    """How many batches the new checkpoint has."""
    deleted_before: Offsets
    """Where the new results begin, if older ones were deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoLive:
    """A pipeline that is to be run from the past to the present."""

    pipeline: Pipeline[Any]
    config: StreamsConfig
    begin: Bound = OPEN
    others: Sequence[Pipeline[Any]] = ()
    """Pipelines that may write the same topics."""
    on_step: OnStep = lambda _line: None

    def plan(self) -> Plan:
        """The pipeline, reading its topics from where it is told to begin."""
        sources = self.pipeline.sources()
        reads = {parameter: replace(topic, start=self._start(topic)) for parameter, topic in sources.items()}
        return make_plan([replace(self.pipeline, reads=reads)])

    def prepare(self, plan: Plan, *, swap: bool) -> ReplayNote:
        """Make the topics, note down what is about to happen, and put an old checkpoint aside."""
        if swap:
            results_topic(self.pipeline, "swapped")
            self._refuse_shared_topics()
        ensure_topics(self.config, plan.topics())
        note = self._noted(swap=swap)
        if note.stage == "begun":
            self._put_aside(note)
            note = replace(note, stage="replaying")
            write_note(self.config, self.pipeline.name, note)
        query = self.pipeline.name
        keep_origin(self.config, query, identify(self.config, plan.source_names).of(plan.topics_of(query)))
        return note

    def run(self, session: SparkSession, plan: Plan, note: ReplayNote) -> WentLive:
        """Replay all that is there, then delete what was there before."""
        self.on_step("replaying the log")
        queries = Queries(session=session, config=self.config, realtime=False, until_now=True)
        try:
            queries.start(plan, dead_letters_of=())
            queries.await_done(REPLAY_S_MAX)
        finally:
            queries.stop()
        return self.finish(note)

    def finish(self, note: ReplayNote) -> WentLive:
        """Delete the old results. The replay is done."""
        delete_before = {place: offset for place, offset in (note.delete_before or {}).items() if offset}
        if delete_before:
            self.on_step("deleting the old results")
            delete_records(Cluster(self.config), delete_before)
        remove_note(self.config, self.pipeline.name)
        log = read_progress_log(checkpoint_path(self.config, self.pipeline.name))
        return WentLive(batch_count=log.next_batch, deleted_before=delete_before)

    def _refuse_shared_topics(self) -> None:
        own = {topic.name for topic in self.pipeline.outputs}
        for other in self.others:
            shared = own & {topic.name for topic in other.outputs}
            if other.name != self.pipeline.name and shared:
                raise PipelineError(
                    f"the results of pipeline {self.pipeline.name} can't be swapped: {other.name} writes "
                    f"{', '.join(sorted(shared))}, too, and its results would be deleted; replay into "
                    "another topic with --into"
                )

    def _start(self, topic: Topic) -> Start:
        if self.begin.moment_ms is not None:
            return _EPOCH + timedelta(milliseconds=self.begin.moment_ms)
        named = {
            partition: offset
            for (name, partition), offset in self.begin.offsets.items()
            if name is None or name in topic.names
        }
        return named or "earliest"

    def _noted(self, *, swap: bool) -> ReplayNote:
        name, code = self.pipeline.name, fingerprint(self.pipeline.function)
        note = read_note(self.config, name)
        if note is not None:
            if note.code != code:
                raise ConfigError(
                    f"a replay of {name} was begun by other code and is not finished: restore the code, or "
                    f"delete {checkpoint_path(self.config, name)} and {note_path(self.config, name)} to "
                    "begin anew"
                )
            return note
        if has_batch(checkpoint_path(self.config, name)) and not swap:
            raise PipelineError(
                f"pipeline {name} has a checkpoint: add --swap to replace it and its results, or give the "
                "pipeline another name and another topic"
            )
        note = ReplayNote(
            id=secrets.token_hex(16), code=code, stage="begun", delete_before=self._ends() if swap else None
        )
        write_note(self.config, name, note)
        return note

    def _ends(self) -> Offsets:
        cluster = Cluster(self.config)
        return end_offsets(cluster, existing_places(cluster, [topic.name for topic in self.pipeline.outputs]))

    def _put_aside(self, note: ReplayNote) -> None:
        checkpoint = checkpoint_path(self.config, self.pipeline.name)
        aside = self.config.data_dir.absolute() / "replaced" / f"{self.pipeline.name}-{note.id}"
        # If it is there, the checkpoint was put aside before a crash.
        if checkpoint.exists() and not aside.exists():
            aside.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            checkpoint.rename(aside)


def go_live(
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    *,
    begin: Bound = OPEN,
    swap: bool = False,
    others: Sequence[Pipeline[Any]] = (),
    on_step: OnStep = lambda _line: None,
) -> WentLive:
    """Run the pipeline from the past to the present; `headrace run` goes on from there.

    `others` are pipelines that may write the same topics.
    """
    config = replace(config, guarantee="exactly-once")
    made = GoLive(pipeline=pipeline, config=config, begin=begin, others=others, on_step=on_step)
    plan = made.plan()
    with ExitStack() as held:
        lock_checkpoint(config, pipeline.name, held)
        note = made.prepare(plan, swap=swap)
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        return made.run(session, plan, note)


def refuse_unfinished(config: StreamsConfig, query: str) -> None:
    """Don't run a pipeline whose replay was interrupted: results would be mixed with those to be deleted."""
    if read_note(config, query) is not None:
        raise PipelineError(
            f"a replay of {query} was interrupted: finish it with `headrace replay`, with the options that "
            "it was begun with, before you run the pipeline"
        )


def delete_records(cluster: Cluster, before: Mapping[tuple[str, int], int]) -> None:
    """Delete the records before these offsets."""
    wanted = [TopicPartition(*place, offset) for place, offset in before.items()]
    for place, future in cluster.client.delete_records(wanted, request_timeout=ANSWER_S_MAX).items():
        try:
            future.result()
        except KafkaException as error:
            raise FaultError(
                f"the old results in partition {place.partition} of {place.topic} could not be deleted: "
                f"{error.args[0].str()}; the new ones are all there. Try again, or set cleanup.policy=delete "
                "before"
            ) from error
