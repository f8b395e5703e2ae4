"""The topic of a pipeline's results, where something needs it to be a topic."""

from __future__ import annotations

from typing import Any

from headrace.errors import PipelineError
from headrace.streams.pipeline import Pipeline
from headrace.streams.topic import Topic


def results_topic(pipeline: Pipeline[Any], action: str) -> Topic:
    """The topic that it writes; raise if it writes something else, with which the action can't be done."""
    target: object = pipeline.writes
    if not isinstance(target, Topic):
        raise PipelineError(
            f"pipeline {pipeline.name} writes {getattr(target, 'name', target)}, which is no topic: only the "
            f"results in a topic can be {action}"
        )
    return target
