"""Where rows go that a store can't take: `<pipeline>.refused`, after the batch they are of, once each."""

from __future__ import annotations

from typing import Final

from headrace.streams.pipeline import Target
from headrace.streams.sinks.refused import REFUSED
from headrace.streams.topic import Topic

STORE: Final = "store"
"""Under which they are counted."""


def refused_topics(pipeline: str, target: Target) -> dict[str, Topic]:
    """The topic of a pipeline whose store may refuse rows, by the name of the files; none for others."""
    if isinstance(target, Topic) or not target.refuses_rows:
        return {}
    return {REFUSED: Topic(name=f"{pipeline}.{REFUSED}", key=("key",))}
