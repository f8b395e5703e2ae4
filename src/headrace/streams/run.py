"""Run pipelines until somebody says stop: what `headrace run` does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

from headrace.config import StreamsConfig, failpoints_to_arm
from headrace.errors import PipelineFailed
from headrace.failpoints import arm_all
from headrace.streams.admin import ensure_topics, identify
from headrace.streams.checkpoint import lock_checkpoint, try_lock_checkpoint
from headrace.streams.gateway import kill_java
from headrace.streams.go_live import refuse_unfinished
from headrace.streams.origin import keep_origin
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import Plan, make_plan
from headrace.streams.progress import Progress
from headrace.streams.queries import Queries
from headrace.streams.reporter import QueryDescription, Reporter, reporting
from headrace.streams.session import start_session, stop_session
from headrace.streams.topic import Topic
from headrace.streams.workspace import workspace

WATCH_EVERY_S: Final = 0.25
SIGNAL_DELAY_S_MAX: Final = 0.5

OnStarted = Callable[[Sequence[str]], None]
OnProgress = Callable[[Progress], None]


def run(
    pipelines: Sequence[Pipeline[Any]],
    config: StreamsConfig,
    *,
    realtime: bool,
    on_started: OnStarted | None = None,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run the pipelines, from their checkpoints where they have one, until SIGINT, SIGTERM or `stop`.

    Returns when all is stopped and Java is gone, which a second signal hastens. `on_started` is called with
    the pipelines' names once they process rows, `on_progress` with each batch that a query has finished.
    """
    config.guarantee_of(realtime=realtime)
    arm_all(failpoints_to_arm())
    plan = make_plan(pipelines)
    with ExitStack() as held, _stop_on_signals(stop) as stopped:
        for name in plan.names:
            lock_checkpoint(config, name, held)
            refuse_unfinished(config, name)
        own = [
            topic for topic in plan.read_topics if try_lock_checkpoint(config, topic.dead_letters_query, held)
        ]
        reporter = held.enter_context(reporting(config, _described(plan, own), realtime=realtime))
        partition_counts = ensure_topics(config, plan.topics())
        origin = identify(config, plan.source_names)
        for query in (*plan.names, *(topic.dead_letters_query for topic in own)):
            keep_origin(config, query, origin.of(plan.topics_of(query)))
        slots = plan.slots(partition_counts, shuffle_partition_count=config.shuffle_partition_count)
        work_dir = held.enter_context(workspace(config.data_dir))
        slots = max(slots, os.cpu_count() or 1)
        session = start_session(config, slots=slots, work_dir=work_dir, realtime=realtime)
        queries = Queries(session=session, config=config, realtime=realtime)
        # Spark has put a handler of its own in place of ours.
        with _stop_on_signals(stopped):
            try:
                if not stopped.is_set():
                    queries.start(plan, own, pipelines_first=True)
                    queries.await_started(stopped)
                if not stopped.is_set():
                    reporter.running()
                    if on_started is not None:
                        on_started(plan.names)
                _watch(queries, stopped, reporter, on_progress)
            finally:
                # Whoever asks a second time does not want to wait.
                with _on_signals(kill_java):
                    stop_session(session)
                queries.release()


def _described(plan: Plan, dead_letters_of: Sequence[Topic]) -> Iterator[QueryDescription]:
    """What each query of the run reads and writes."""
    for pipeline in plan.pipelines:
        reads = tuple(sorted(plan.topics_of(pipeline.name)))
        target = pipeline.writes
        kind = "topic" if isinstance(target, Topic) else target.noun
        yield QueryDescription(name=pipeline.name, reads=reads, writes=target.name, writes_kind=kind)
    for topic in dead_letters_of:
        name = topic.dead_letters_query
        yield QueryDescription(name=name, reads=(topic.name,), writes=topic.dead_letters)


def _watch(
    queries: Queries, stop: threading.Event, reporter: Reporter, on_progress: OnProgress | None
) -> None:
    """Raise as soon as a query fails; report each finished batch once."""
    while not stop.wait(WATCH_EVERY_S):
        try:
            queries.check()
            queries.start_kept_back()
            finished = queries.progress()
        except PipelineFailed:
            # Whoever ends a whole group of processes ends Java too, perhaps a moment before us.
            if stop.wait(SIGNAL_DELAY_S_MAX):
                return
            raise
        reporter.resumed(queries.resumes())
        reporter.report(finished)
        if on_progress is not None:
            for progress in finished:
                on_progress(progress)


@contextmanager
def _stop_on_signals(stop: threading.Event | None) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    event = stop or threading.Event()
    with _on_signals(event.set):
        yield event


@contextmanager
def _on_signals(act: Callable[[], None]) -> Iterator[None]:
    """Do this at SIGINT and SIGTERM; in the main thread only, because no other gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        act()

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
