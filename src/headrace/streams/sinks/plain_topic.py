"""Write batches to a topic at least once, by Spark's own sink, where a batch is more than one write."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from headrace.config import StreamsConfig
from headrace.streams.client_options import kafka_options
from headrace.streams.sinks.connection import BUFFER_BYTES, REQUEST_BYTES_MAX
from headrace.streams.sinks.records import to_records
from headrace.streams.topic import Topic


def producer_options(config: StreamsConfig) -> dict[str, str]:
    """The options of Spark's own sink."""
    return {
        **kafka_options(config),
        "kafka.max.request.size": str(REQUEST_BYTES_MAX),
        "kafka.buffer.memory": str(BUFFER_BYTES),
    }


class PlainTopicWriter:
    """Writes batches of rows to a topic. A batch that is run again is written again."""

    def __init__(self, topic: Topic, pipeline: str, options: Mapping[str, str]) -> None:
        self._topic = topic
        self._pipeline = pipeline
        self._options = options

    def write(self, rows: DataFrame, batch_id: int) -> int | None:
        """Write the rows."""
        return self.write_records(to_records(rows, self._topic, pipeline=self._pipeline), batch_id)

    def write_records(self, records: DataFrame, batch_id: int) -> int | None:  # noqa: ARG002 - as others do
        """The same for rows that are records: topic, key, value and headers."""
        records.write.format("kafka").options(**self._options).save()
        return None

    def close(self) -> None:
        """There is nothing to let go of."""
