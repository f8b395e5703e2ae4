"""Run a pipeline from the past to the present on the checkpoint that `headrace run` goes on from.

Nothing is left out between the two, and nothing is read twice, because it is one checkpoint. With `swap`, the
new one takes the place of an old one, and the new results that of the old. In a topic:

    1  build the pipeline, and note down what is about to happen
    2  shut out any run that still writes, and note down where the new results begin: the end of each topic
    3  put the old checkpoint aside, into DATA/replaced/
    4  replay, each result exactly once, behind the old results
    5  delete the old results

Readers see old results, then new ones behind them, then new ones only. A table gets its new rows at once:
they are written to a table beside it in step 4 and swapped in in step 5 (see sinks/swaps.py), where an
earlier run is shut out, too.

After a crash at any of these points, the same call goes on (see replay_note.py); until then, `headrace run`
is refused. A failure up to step 2 leaves no note, because the checkpoint is as it was.
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
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.config import StreamsConfig, failpoints_to_arm
from headrace.errors import ConfigError, FaultError, PipelineError
from headrace.failpoints import arm_all
from headrace.streams.admin import ANSWER_S_MAX, Cluster, ensure_topics, identify
from headrace.streams.building import build_stream
from headrace.streams.checkpoint import checkpoint_path, lock_checkpoint
from headrace.streams.circumstances import targets
from headrace.streams.claim import note_claim
from headrace.streams.client_options import portable_options
from headrace.streams.code import fingerprint
from headrace.streams.failure import first_line
from headrace.streams.log_offsets import cleanup_policy, existing_places, find_span, written_ends
from headrace.streams.origin import keep_origin
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import Plan, make_plan
from headrace.streams.progress_log import Offsets, has_batch, read_progress_log
from headrace.streams.queries import Queries, written_rows
from headrace.streams.replay_note import ReplayNote, note_path, read_note, remove_note, write_note
from headrace.streams.session import start_session, stop_session
from headrace.streams.sinks.context import WriteContext, read_query_id
from headrace.streams.sinks.shut_out import shut_out
from headrace.streams.sinks.stores import store_of
from headrace.streams.sinks.swaps import TableSwap
from headrace.streams.source import Reader, read_stream
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
    is_swapped: bool
    """Whether the new results have taken the place of old ones."""
    deleted_before: Offsets
    """Where the new results begin in topics, if older ones were deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoLive:
    """A pipeline that is to be run from the past to the present."""

    pipeline: Pipeline[Any]
    config: StreamsConfig
    begin: Bound = OPEN
    others: Sequence[Pipeline[Any]] = ()
    """Pipelines that may write the same topics or table."""
    on_step: OnStep = lambda _line: None

    def plan(self) -> Plan:
        """The pipeline, reading its topics from where it is told to begin."""
        sources = self.pipeline.sources()
        reads = {parameter: replace(topic, start=self._start(topic)) for parameter, topic in sources.items()}
        return make_plan([replace(self.pipeline, reads=reads)])

    def prepare(self, plan: Plan, *, swap: bool) -> ReplayNote:
        """Make the topics, and say what is about to happen: what was begun goes on."""
        note = self._noted()
        if note is None or note.stage == "begun":
            self._refuse(swap=swap)
            ensure_topics(self.config, plan.topics())
            self._refuse_by_topics(plan, swap=swap)
            id_ = secrets.token_hex(16) if note is None else note.id
            return ReplayNote(id=id_, code=fingerprint(self.pipeline.function), stage="begun", swap=swap)
        ensure_topics(self.config, plan.topics())
        if note.stage != "shut out":
            self._keep_origin(plan)
        return note

    def make_room(self, session: SparkSession, plan: Plan, note: ReplayNote) -> ReplayNote:
        """Do what comes before the first new result. The checkpoint that there was is put aside last."""
        if note.stage == "begun":
            note = self._shut_out_or_stage(session, plan, note)
        elif note.stage != "replayed":
            self._refuse_unmade(note)
        if note.stage == "shut out":
            self._put_aside(note)
            note = self._keep(replace(note, stage="replaying"))
            self._keep_origin(plan)
        return note

    def run(self, session: SparkSession, plan: Plan, note: ReplayNote) -> WentLive:
        """Replay all that is there, then let it take the place of what was there before."""
        note = self.make_room(session, plan, note)
        swap = self._swap(note)
        if swap is not None:
            plan = replace(plan, pipelines=tuple(replace(p, writes=swap.staging) for p in plan.pipelines))
        if note.stage != "replayed":
            self._replay(session, plan)
            note = self._keep(replace(note, stage="replayed"))
        return self.finish(note)

    def finish(self, note: ReplayNote) -> WentLive:
        """Let the new results take the place of the old. The replay is done."""
        checkpoint = checkpoint_path(self.config, self.pipeline.name)
        swap = self._swap(note)
        delete_before = {place: offset for place, offset in (note.delete_before or {}).items() if offset}
        if swap is not None:
            self.on_step("swapping the new rows in")
            query_id = read_query_id(checkpoint)
            swap.commit(query_id)
            # So far it has had the ledger of the staged rows only.
            note_claim(checkpoint, query_id, self.pipeline.writes.name)
        elif delete_before:
            self.on_step("deleting the old results")
            delete_records(Cluster(self.config), delete_before)
        remove_note(self.config, self.pipeline.name)
        return WentLive(
            batch_count=read_progress_log(checkpoint).next_batch,
            is_swapped=swap is not None or bool(delete_before),
            deleted_before=delete_before,
        )

    def _replay(self, session: SparkSession, plan: Plan) -> None:
        self.on_step("replaying the log")
        queries = Queries(session=session, config=self.config, realtime=False, until_now=True)
        try:
            queries.start(plan, dead_letters_of=())
            queries.await_done(REPLAY_S_MAX)
        finally:
            queries.stop()

    def _swap(self, note: ReplayNote) -> TableSwap | None:
        """How the rows of a table are swapped, if they are to be."""
        target = self.pipeline.writes
        if not note.swap or isinstance(target, Topic):
            return None
        return store_of(target).swap(target, pipeline=self.pipeline.name, swap_id=note.id)

    def _shut_out_or_stage(self, session: SparkSession, plan: Plan, note: ReplayNote) -> ReplayNote:
        """Shut out who writes the topic, or make the table that the replay writes."""
        target, swap = self.pipeline.writes, self._swap(note)
        try:
            schema = self._written_schema(session, plan)
            if swap is not None:
                swap.check(schema)
            self._keep(note)
            if swap is not None:
                swap.make()
            elif note.swap and isinstance(target, Topic):
                note = replace(note, delete_before=self._shut_out(target, note))
        except BaseException:
            # The checkpoint is as it was: there is nothing to go on with.
            remove_note(self.config, self.pipeline.name)
            raise
        return self._keep(replace(note, stage="shut out"))

    def _refuse_unmade(self, note: ReplayNote) -> None:
        swap = self._swap(note)
        if swap is not None and not swap.is_made():
            raise ConfigError(
                f"the rows that were replayed so far are gone with the table {swap.staging.name}: delete "
                f"{checkpoint_path(self.config, self.pipeline.name)} and "
                f"{note_path(self.config, self.pipeline.name)} to begin anew"
            )

    def _written_schema(self, session: SparkSession, plan: Plan) -> StructType:
        """What the pipeline writes; raise if it can't be built."""
        reader = Reader(name=self.pipeline.name, config=self.config)
        sources = plan.sources[self.pipeline.name]
        frames = {parameter: read_stream(session, topic, reader) for parameter, topic in sources.items()}
        try:
            rows, _ = build_stream(self.pipeline, frames, self.config)
            return written_rows(self.pipeline, rows).schema
        except AnalysisException as error:
            raise PipelineError(f"pipeline {self.pipeline.name} can't run: {first_line(error)}") from error

    def _keep_origin(self, plan: Plan) -> None:
        query = self.pipeline.name
        keep_origin(self.config, query, identify(self.config, plan.source_names).of(plan.topics_of(query)))

    def _keep(self, note: ReplayNote) -> ReplayNote:
        write_note(self.config, self.pipeline.name, note)
        return note

    def _noted(self) -> ReplayNote | None:
        """What was begun; raise if it has results of other code."""
        name = self.pipeline.name
        note = read_note(self.config, name)
        if note is None or note.stage == "begun":
            return note
        if note.code != fingerprint(self.pipeline.function):
            raise ConfigError(
                f"a replay of {name} was begun by other code and is not finished: restore the code, or "
                f"delete {checkpoint_path(self.config, name)} and {note_path(self.config, name)} to "
                "begin anew"
            )
        return note

    def _refuse(self, *, swap: bool) -> None:
        name = self.pipeline.name
        if not swap:
            if has_batch(checkpoint_path(self.config, name)):
                raise PipelineError(
                    f"pipeline {name} has a checkpoint: add --swap to replace it and its results, or give "
                    "the pipeline another name and another topic or table"
                )
            return
        for other in self.others:
            shared = sorted(what for _, what in targets(self.pipeline) & targets(other))
            if other.name != name and shared:
                raise PipelineError(
                    f"the results of pipeline {name} can't be swapped: {other.name} writes "
                    f"{', '.join(shared)}, too, and its results would be deleted; replay into something new "
                    "with --into"
                )

    def _refuse_by_topics(self, plan: Plan, *, swap: bool) -> None:
        """Refuse a start that is not in the log, and topics whose records can't be deleted."""
        find_span(self.config, sorted(plan.source_names), begin=self.begin, finish=OPEN)
        cluster = Cluster(self.config)
        for topic in self.pipeline.outputs if swap else ():
            policy = cleanup_policy(cluster, topic.name)
            if "delete" not in policy.split(","):
                raise PipelineError(
                    f"the results in {topic.name} can't be swapped: its cleanup.policy is {policy}, so that "
                    "the old ones can't be deleted; set it to compact,delete, or replay into a new topic "
                    "with --into"
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

    def _shut_out(self, topic: Topic, note: ReplayNote) -> Offsets:
        """Let nobody write old results any more; return where they end, committed or not."""
        cluster = Cluster(self.config)
        places = existing_places(cluster, [output.name for output in self.pipeline.outputs])
        context = WriteContext(
            pipeline=self.pipeline.name,
            query_id=f"swap-{note.id}",
            bootstrap=self.config.bootstrap,
            client_options=portable_options(self.config.client_options),
            guarantee="exactly-once",
            transaction_s_max=self.config.transaction_s_max,
        )
        shut_out(topic.name, context, sum(name == topic.name for name, _ in places))
        return written_ends(cluster, places)

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

    `others` are pipelines that may write the same topics or table.
    """
    config = replace(config, guarantee="exactly-once")
    made = GoLive(pipeline=pipeline, config=config, begin=begin, others=others, on_step=on_step)
    plan = made.plan()
    arm_all(failpoints_to_arm())
    with ExitStack() as held:
        lock_checkpoint(config, pipeline.name, held)
        note = made.prepare(plan, swap=swap)
        if note.stage == "replayed":
            return made.finish(note)
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        return made.run(session, plan, note)


def refuse_unfinished(config: StreamsConfig, query: str) -> None:
    """Don't run a pipeline whose replay was interrupted: results would be mixed with those to be deleted."""
    note = read_note(config, query)
    if note is None:
        return
    path = note_path(config, query)
    way_out = (
        f"delete {path} to run the pipeline as before"
        if note.stage == "begun"
        else f"delete {checkpoint_path(config, query)} and {path} to replay anew"
    )
    raise PipelineError(
        f"a replay of {query} was interrupted: finish it with `headrace replay`, with the options that it "
        f"was begun with, before you run the pipeline, or give it up: {way_out}"
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
