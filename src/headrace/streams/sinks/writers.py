"""Which writer belongs to a pipeline's target."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.streams.admin import ensure_topics
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.topic import Topic

Target = Topic
"""What a pipeline can write."""


def batch_writer(target: Target, context: WriteContext, side_outputs: Sequence[Topic] = ()) -> BatchWriter:
    """A writer of batches to the target, whose topics must exist."""
    return topic_writer(target, context, side_outputs)


def topic_writer(topic: Topic, context: WriteContext, side_outputs: Sequence[Topic] = ()) -> TopicWriter:
    """A writer of batches to a topic and its side outputs, which must exist."""
    counts = ensure_topics(context, {topic.name: 1})
    return TopicWriter(topic, context, partition_count=counts[topic.name], side_outputs=side_outputs)
