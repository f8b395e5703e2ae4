"""Kafka's own tool reads our files: segments, their indexes, and the snapshots of producers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apache_kafka import run_java
from headrace.broker import Broker
from headrace.config import Address, BrokerConfig, LogConfig
from kafka_clients.confluent import ConfluentClient
from kafka_clients.interface import NewRecord

pytestmark = pytest.mark.java

DUMP = "org.apache.kafka.tools.DumpLogSegments"


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition that a broker wrote in several segments, every codec among them, and then closed."""
    tmp_path = tmp_path_factory.mktemp("segments")
    log = LogConfig(segment_bytes_max=8_192, index_interval_bytes=512)
    with Broker(tmp_path / "data", config=BrokerConfig(listen=Address("127.0.0.1", 0), log=log)) as broker:
        client = ConfluentClient(broker.bootstrap)
        client.admin.create_topic("orders", 1, {})
        producers = [client.producer(compression_type=codec, enable_idempotence=True) for codec in CODECS]
        for number, (codec, producer) in enumerate([*zip(CODECS, producers, strict=True)] * 8):
            producer.send(
                NewRecord(
                    topic="orders", partition=0, key=b"key", value=f"{codec} {number} {index}".encode() * 5
                )
                for index in range(20)
            )
            producer.flush()
        client.close()
    (segment, *_) = (tmp_path / "data").rglob("orders*/00000000000000000000.log")
    return segment.parent


def dump(jars: list[Path], files: list[Path], *options: str) -> str:
    return run_java(jars, DUMP, *options, "--files", ",".join(map(str, files)))


def test_every_record_of_every_segment_is_read_and_its_checksum_is_right(
    directory: Path, kafka_jars: list[Path]
) -> None:
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    dumped = dump(kafka_jars, segments, "--print-data-log")
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]
    assert offsets == list(range(800))
    assert "isvalid: false" not in dumped
    assert set(CODECS) == set(re.findall(r"compresscodec: (\w+)", dumped))
    assert "payload: zstd 39 19" in dumped


@pytest.mark.parametrize("pattern", ["*.index", "*.timeindex"])
def test_indexes_point_where_kafka_expects_them_to(
    directory: Path, kafka_jars: list[Path], pattern: str
) -> None:
    indexes = [index for index in sorted(directory.glob(pattern)) if index.stat().st_size]
    assert indexes
    dumped = dump(kafka_jars, indexes)
    assert len(re.findall(r"^(offset|timestamp): \d+", dumped, re.MULTILINE)) > 3
    for complaint in ("Mismatches", "Found timestamp mismatch", "not found", "out of order"):
        assert complaint not in dumped


def test_snapshots_of_producers_are_read(directory: Path, kafka_jars: list[Path]) -> None:
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots
    dumped = dump(kafka_jars, snapshots[-1:])
    assert re.search(r"producerId: \d+ producerEpoch: 0", dumped)
