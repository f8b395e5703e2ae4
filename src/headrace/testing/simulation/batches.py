"""What a consumer makes of the bytes that it has fetched, by the rules of Kafka's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.log.batch import decode_records, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kafka.messages.fetch import AbortedTransaction

ABORT: Final = 0


class Read(NamedTuple):
    """The records that the application is given, as offset and value, and where the consumer goes on."""

    records: list[tuple[int, bytes]]
    position: int


def read_batches(
    data: bytes, position: int, aborted: Sequence[AbortedTransaction] | None, *, is_read_committed: bool
) -> Read:
    """Leave out what lies before the position, markers, and, if asked to, records of aborted transactions.

    The list of aborted transactions says from which offset on a producer's records are to be left out; its
    next abort marker ends that.
    """
    starts = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    left_out: set[int] = set()
    records: list[tuple[int, bytes]] = []
    view = memoryview(data)
    while view:
        header = read_header(view)
        batch, view = bytes(view[: header.size_bytes]), view[header.size_bytes :]
        while starts and starts[-1].first_offset <= header.last_offset:
            left_out.add(starts.pop().producer_id)
        if header.is_control:
            if _marker_type(batch) == ABORT:
                left_out.discard(header.producer_id)
        elif not (is_read_committed and header.is_transactional and header.producer_id in left_out):
            records += [
                (record.offset, record.value or b"")
                for record in decode_records(batch)
                if record.offset >= position
            ]
        position = max(position, header.last_offset + 1)
    return Read(records, position)


def _marker_type(batch: bytes) -> int:
    key = decode_records(batch)[0].key or b""
    return int.from_bytes(key[2:4], "big")
