"""The batches of one of the broker's own topics, in their order, to put together what it knew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.log.batch import read_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.log.batch import BatchHeader
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore

READ_BYTES: Final = 1024 * 1024


def internal_batches(store: LogStore, topic_name: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """All batches in their order; none where the topic was never needed."""
    topic = store.topics.get(topic_name)
    if topic is None:
        return
    log: PartitionLog = topic.partitions[0]
    offset = log.start_offset
    while data := log.read(offset, size_bytes_max=READ_BYTES):
        view = memoryview(data)
        while view:
            header = read_header(view)
            yield header, bytes(view[: header.size_bytes])
            offset = header.last_offset + 1
            view = view[header.size_bytes :]
