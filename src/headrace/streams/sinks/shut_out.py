"""Keep an earlier run of a pipeline from writing its topics any more, wherever it runs.

A new producer of each share fences those that are at work: what they have open is aborted before this
returns. An entry of another query in the ledger (see ledger.py) refuses what they would begin afterwards. The
next run of the pipeline begins afresh. Runs that write at-least-once know no ledger and can't be shut out.
"""

from __future__ import annotations

from headrace.streams.sinks.connection import Connector, ShareWriter
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.ledger import NO_DIGEST, Entry


def shut_out(topic: str, context: WriteContext, partition_count: int) -> None:
    """Shut out all that write the pipeline's shares. The context's query id is that of nobody else."""
    connector = Connector(
        pipeline=context.pipeline,
        topic=topic,
        client_options={**context.client_options, "bootstrap.servers": context.bootstrap},
        transaction_s_max=context.transaction_s_max,
    )
    entry = Entry(next_batch_id=0, query_id=context.query_id, task_count=partition_count, digest=NO_DIGEST)
    for share in range(partition_count):
        writer = ShareWriter(connector, share)
        try:
            writer.begin()
            writer.commit(entry)
        finally:
            writer.close()
