"""Batches as a producer sends them, and partitions on a disk in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from headrace.clock import Clock
from headrace.config import LONG_MAX
from headrace.log.batch import encode_batch
from headrace.log.failure import FailStop
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.storage import Storage
from headrace.log.store import LogStore
from headrace.log.stored_batches import Lending
from headrace.log.topic_settings import TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import open_log

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]


@pytest.fixture(scope="session")
def clock() -> Clock:
    return ManualClock()


@pytest.fixture(scope="session")
def make_batch() -> MakeBatch:
    """A batch of so many records, all at one time unless a list of times is given."""

    def make(
        count: int = 1,
        *,
        at: int | list[int] = 1000,
        value: bytes = b"value",
        producer: tuple[int, int, int] = (-1, -1, -1),
        attributes: int = 0,
    ) -> bytes:
        times = at if isinstance(at, list) else [at] * count
        records = [Record(timestamp_ms=time, key=b"key", value=value) for time in times]
        producer_id, epoch, sequence = producer
        return encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=attributes,
        )

    return make


@pytest.fixture(scope="session")
def sign() -> Callable[[bytes], bytes]:
    """Give a batch that was tampered with the length and the checksum of what it is now."""

    def sign_(batch: bytes) -> bytes:
        crc = crc32c(batch[21:]).to_bytes(4, "big")
        return batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:17] + crc + batch[21:]

    return sign_


@pytest.fixture(scope="session")
def partition_dir() -> Path:
    return Path("/data/log/topic-0")


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def open_partition(disk: SimulatedDisk, clock: Clock, partition_dir: Path) -> OpenPartition:
    """Open the partition on the disk in memory, with small segments unless told otherwise."""

    def open_(
        segment_bytes_max: int = 1024, index_interval_bytes: int = 100, lending: Lending | None = None
    ) -> PartitionLog:
        settings = TopicSettings(
            segment_bytes=segment_bytes_max, index_interval_bytes=index_interval_bytes, segment_ms=LONG_MAX
        )
        storage = Storage(
            disk=disk, files=OpenFiles(disk), fail_stop=FailStop(), lending=lending or Lending()
        )
        return open_log(partition_dir, settings, clock, storage=storage)

    return open_


@pytest.fixture(scope="session")
def allocate_producer_ids() -> Callable[[LogStore, int], range]:
    """Take so many producer ids, and have more reserved where they are wanting."""

    def allocate(store: LogStore, count: int) -> range:
        while (taken := store.take_producer_ids(count)) is None:
            store.begin_producer_id_block(count).at_once()
        return taken

    return allocate
