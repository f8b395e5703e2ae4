"""Where pipelines write: batches of rows to topics, by one of three guarantees, or to tables, exactly once.

A target's writer has `write(rows, batch_id)`, which Spark calls for each batch, and again with the same id
after a crash: see `context`. `writers.batch_writer(target, context)` makes it. What tasks on executors need
imports no more than that, because each Python process of theirs loads it anew.
"""
