"""What is known of how a pipeline was run, for the judgement of differences. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.streams.code import fingerprint
from headrace.streams.comparison import DIGITS, Circumstances
from headrace.streams.history import History
from headrace.streams.pipeline import Pipeline
from headrace.streams.plans.results import Results
from headrace.streams.processed import Processed
from headrace.streams.topic import Topic


def circumstances_of(
    pipeline: Pipeline[Any],
    history: History | None,
    results: Results,
    others: Sequence[Pipeline[Any]],
) -> Circumstances:
    """Put together what is known."""
    guarantees = {run.guarantee for run in history.runs} if history else {"at-least-once"}
    # Tables are written exactly once, whatever less is asked for.
    is_topic = isinstance(pipeline.writes, Topic)
    return Circumstances(
        may_repeat=is_topic and "at-least-once" in guarantees,
        may_lose=is_topic and "at-most-once" in guarantees,
        code_changed=code_change(history, fingerprint(pipeline.function)),
        shared_with=tuple(other.name for other in others if targets(pipeline) & targets(other)),
        filters_results=results.way == "latest" and results.is_filtered,
        drops_late_rows=history is not None and history.plan.drops_late_rows,
    )


def targets(pipeline: Pipeline[Any]) -> set[tuple[str, str]]:
    """All that it writes, by kind and name."""
    written = {("topic", topic.name) for topic in pipeline.outputs}
    return written | {(type(pipeline.writes).__name__.lower(), pipeline.writes.name)}


def code_change(history: History | None, now: str | None) -> str | None:
    """How the code has changed since the checkpoint was begun; None if it has not."""
    if history is None or not history.runs:
        return None
    *earlier, last = history.runs
    if last.code != now:
        return "it has changed since it was last run"
    if any(run.code != now for run in earlier):
        since = max(
            run.since_batch
            for run, before in zip(history.runs[1:], earlier, strict=True)
            if run.code != before.code
        )
        return f"it runs as it is now since batch {since}"
    return None


def remarks_of(history: History | None, results: Results, processed: Processed) -> Iterator[str]:
    """What a reader of the outcome must know."""
    for column, causes in results.uncertain.items():
        yield f"column {column} was not compared: it is made by {' and '.join(sorted(causes))}"
    if results.approximate:
        names = ", ".join(results.approximate)
        yield f"of {names} the first {DIGITS} digits were compared: the last depend on the order of rows"
    if results.way == "contained":
        yield (
            "it was compared only whether the final results are among those that were written: which columns "
            "make the key of a result can't be told"
        )
    if history is None:
        yield "how the pipeline was run was not noted down: duplicates are taken to be allowed"
    if not processed.is_settled:
        yield (
            f"batch {processed.log.next_batch} may be in progress: what is verified ends with the one before"
        )
