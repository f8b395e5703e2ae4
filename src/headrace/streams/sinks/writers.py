"""Which writer belongs to a pipeline's target."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.streams.admin import ensure_topics
from headrace.streams.pipeline import Target
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.stores import store_of
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.topic import Topic


def batch_writer(target: Target, context: WriteContext, side_outputs: Sequence[Topic] = ()) -> BatchWriter:
    """A writer of batches to the target. Topics must exist; other stores are made if they are missing."""
    if isinstance(target, Topic):
        return topic_writer(target, context, side_outputs)
    return store_of(target).writer(target, context)


def topic_writer(topic: Topic, context: WriteContext, side_outputs: Sequence[Topic] = ()) -> TopicWriter:
    """A writer of batches to a topic and its side outputs, which must exist."""
    counts = ensure_topics(context, {topic.name: 1})
    return TopicWriter(topic, context, partition_count=counts[topic.name], side_outputs=side_outputs)
