"""Where pipelines write: batches of rows to topics, by one of three guarantees, or to tables, exactly once.

A target's writer has `write(rows, batch_id)`, which Spark calls for each batch, and again with the same id
after a crash. `batch_writer(target, context)` makes it.
"""

from headrace.streams.pipeline import Target
from headrace.streams.sinks.context import BatchWriter, WriteContext, read_query_id
from headrace.streams.sinks.writers import batch_writer

__all__ = ["BatchWriter", "Target", "WriteContext", "batch_writer", "read_query_id"]
