"""A real process that appends on a real disk, killed without warning, again and again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headrace.clock import SystemClock
from headrace.log.batch import decode_records, encode_batch, split_batches
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.topic_settings import TopicSettings
from headrace.testing.partition import open_log

SIZE_MAX = 1_000_000
ROUNDS = 5
ACKNOWLEDGEMENTS_PER_ROUND = 30
SETTINGS = TopicSettings(segment_bytes=20_000, index_interval_bytes=500)

WRITER = """
import sys
from pathlib import Path
from headrace.clock import SystemClock
from headrace.log.topic_settings import TopicSettings
from headrace.log.batch import encode_batch
from headrace.log.record import Record
from headrace.testing.partition import open_log

settings = TopicSettings(segment_bytes=20_000, index_interval_bytes=500)
log = open_log(Path(sys.argv[1]), settings, SystemClock())
while True:
    for _ in range(7):
        first = log.end_offset
        records = [Record(timestamp_ms=n, key=None, value=b"record %d" % n) for n in range(first, first + 10)]
        batch = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=first)
        log.append(batch, size_bytes_max=1_000_000)
    log.sync()
    print(log.durable_offset, flush=True)
"""


def _write_until_killed(directory: Path) -> int:
    """Let a process append; kill it after some acknowledgements; return the last one that it gave."""
    command = [sys.executable, "-c", WRITER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(ACKNOWLEDGEMENTS_PER_ROUND)]
        process.kill()
        lines += process.stdout.readlines()
    return max(int(line) for line in lines if line.endswith("\n"))


def _read_all(log: PartitionLog) -> list[Record]:
    records: list[Record] = []
    while data := log.read(len(records), size_bytes_max=5000):
        for batch in split_batches(data, SIZE_MAX):
            records += decode_records(batch.data)
    return records


def test_every_acknowledged_record_survives_kill_9(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    end_offset = 0
    for _ in range(ROUNDS):
        acknowledged = _write_until_killed(directory)
        assert acknowledged > end_offset
        log = open_log(directory, SETTINGS, SystemClock())
        records = _read_all(log)
        assert len(records) == log.end_offset >= acknowledged
        assert [(r.offset, r.timestamp_ms, r.value) for r in records] == [
            (n, n, b"record %d" % n) for n in range(len(records))
        ]
        last = records[-10:]
        again = encode_batch(last, producer_id=1, producer_epoch=0, base_sequence=last[0].offset)
        retried = log.append(again, size_bytes_max=SIZE_MAX)
        assert (retried.duplicate, retried.base_offset) == (True, last[0].offset)
        end_offset = log.end_offset
        log.close()
