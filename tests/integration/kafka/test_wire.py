"""What only raw frames can show: retries, order, sessions, topic ids, versions."""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from typing import TYPE_CHECKING, Any

import kio.schema.fetch.v12.request
import kio.schema.fetch.v17.request
import kio.schema.produce.v9.request
import kio.schema.produce.v13.request
import pytest

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig
from headrace.log.batch import encode_batch
from headrace.log.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 18, 22


def batch(
    value: bytes, *, producer_id: int = -1, sequence: int = -1, epoch: int = 0, attributes: int = 0
) -> bytes:
    return encode_batch(
        [Record(timestamp_ms=1_000, key=None, value=value)],
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        attributes=attributes,
    )


def produce_fields(
    records: bytes, *, acks: int = -1, topic: str = "wire", partition: int = 0
) -> dict[str, Any]:
    schemas: Any = kio.schema.produce.v9.request
    data = schemas.PartitionProduceData(index=partition, records=records)
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": dt.timedelta(seconds=30),
        "topic_data": (schemas.TopicProduceData(name=topic, partition_data=(data,)),),
    }


def fetch_fields(*, offset: int = 0, max_wait_ms: int = 0, min_bytes: int = 1) -> dict[str, Any]:
    schemas: Any = kio.schema.fetch.v12.request
    partition = schemas.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    return {
        "max_wait": dt.timedelta(milliseconds=max_wait_ms),
        "min_bytes": min_bytes,
        "topics": (schemas.FetchTopic(topic="wire", partitions=(partition,)),),
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def produced(answer: Any) -> tuple[str, int]:
    partition = answer.responses[0].partition_responses[0]
    return partition.error_code.name, partition.base_offset


def fetched(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


@pytest.fixture
def topic(kafka: Any) -> str:
    created: str = kafka.create_topic("wire")
    return created


@pytest.fixture
def producer_id(raw: Any) -> int:
    fields = {"transactional_id": None, "transaction_timeout": dt.timedelta(0)}
    return int(raw.request(INIT_PRODUCER_ID, 4, **fields).producer_id)


def test_a_produce_that_is_sent_again_gets_the_first_offset_and_is_not_written_twice(
    topic: str, raw: Any, producer_id: int
) -> None:
    first = raw.request_frame(
        PRODUCE, 9, **produce_fields(batch(b"once", producer_id=producer_id, sequence=0))
    )
    second = raw.request_frame(
        PRODUCE, 9, **produce_fields(batch(b"then", producer_id=producer_id, sequence=1))
    )
    answers = []
    for frame in (first, second, first, second):
        raw.send(frame)
        answers.append(produced(raw.receive(PRODUCE, 9)))
    assert answers == [("none", 0), ("none", 1), ("none", 0), ("none", 1)]
    assert fetched(raw.request(FETCH, 12, **fetch_fields())).high_watermark == 2


def test_a_retry_on_another_connection_is_recognised_too(
    topic: str, raw: Any, raw_at: Callable[[str], Any], kafka: Any, producer_id: int
) -> None:
    records = batch(b"once", producer_id=producer_id, sequence=0)
    assert produced(raw.request(PRODUCE, 9, **produce_fields(records))) == ("none", 0)
    other = raw_at(kafka.bootstrap)
    assert produced(other.request(PRODUCE, 9, **produce_fields(records))) == ("none", 0)


def test_a_gap_in_a_producers_sequence_is_refused(topic: str, raw: Any, producer_id: int) -> None:
    raw.request(PRODUCE, 9, **produce_fields(batch(b"a", producer_id=producer_id, sequence=0)))
    gap = raw.request(PRODUCE, 9, **produce_fields(batch(b"c", producer_id=producer_id, sequence=2)))
    assert produced(gap) == ("out_of_order_sequence_number", -1)


def test_an_older_epoch_of_a_producer_is_refused(topic: str, raw: Any, producer_id: int) -> None:
    newer = batch(b"a", producer_id=producer_id, sequence=0, epoch=1)
    older = batch(b"b", producer_id=producer_id, sequence=0, epoch=0)
    assert produced(raw.request(PRODUCE, 9, **produce_fields(newer))) == ("none", 0)
    assert produced(raw.request(PRODUCE, 9, **produce_fields(older))) == ("invalid_producer_epoch", -1)


def test_a_producer_that_asks_again_gets_another_id_as_from_kafka(raw: Any, producer_id: int) -> None:
    fields = {"transactional_id": None, "transaction_timeout": dt.timedelta(0)}
    again = raw.request(INIT_PRODUCER_ID, 4, **fields, producer_id=producer_id, producer_epoch=3)
    assert (again.producer_id, again.producer_epoch) == (producer_id + 1, 0)


def test_a_batch_whose_checksum_is_wrong_is_refused(topic: str, raw: Any) -> None:
    damaged = bytearray(batch(b"value"))
    damaged[-1] ^= 1
    assert produced(raw.request(PRODUCE, 9, **produce_fields(bytes(damaged)))) == ("corrupt_message", -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        (produce_fields(batch(b"x"), topic="nowhere"), "unknown_topic_or_partition"),
        (produce_fields(batch(b"x"), partition=7), "unknown_topic_or_partition"),
        (produce_fields(batch(b"x"), partition=-1), "unknown_topic_or_partition"),
        (produce_fields(batch(b"x"), acks=2), "invalid_required_acks"),
        (produce_fields(b""), "corrupt_message"),
        (produce_fields(batch(b"x", attributes=0x10)), "transactional_id_authorization_failed"),
        (produce_fields(batch(b"x", attributes=0x20)), "invalid_record"),
    ],
)
def test_a_produce_that_cannot_be_is_refused_with_the_right_code(
    topic: str, raw: Any, fields: dict[str, Any], error: str
) -> None:
    assert produced(raw.request(PRODUCE, 9, **fields)) == (error, -1)


def test_pipelined_requests_are_answered_in_order(topic: str, raw: Any) -> None:
    frames = [raw.request_frame(PRODUCE, 9, **produce_fields(batch(b"%d" % number))) for number in range(50)]
    frames.append(raw.request_frame(FETCH, 12, **fetch_fields()))
    raw.send(b"".join(frames))
    assert [produced(raw.receive(PRODUCE, 9)) for _ in range(50)] == [
        ("none", number) for number in range(50)
    ]
    assert fetched(raw.receive(FETCH, 12)).high_watermark == 50


def test_a_produce_that_asks_for_no_acknowledgement_gets_no_answer(topic: str, raw: Any) -> None:
    raw.send(raw.request_frame(PRODUCE, 9, **produce_fields(batch(b"silent"), acks=0)))
    answer = raw.request(PRODUCE, 9, **produce_fields(batch(b"loud")))
    assert produced(answer) == ("none", 1)


def test_a_failed_produce_that_asks_for_no_acknowledgement_closes_the_connection(
    topic: str, raw: Any
) -> None:
    raw.send(raw.request_frame(PRODUCE, 9, **produce_fields(batch(b"x"), acks=0, topic="nowhere")))
    assert raw.is_closed_by_the_broker()


def test_a_fetch_waits_as_long_as_it_says_and_then_answers_with_nothing(topic: str, raw: Any) -> None:
    raw.send(raw.request_frame(FETCH, 12, **fetch_fields(max_wait_ms=300)))
    assert not raw.has_something_to_read()
    answer = fetched(raw.receive(FETCH, 12))
    assert (answer.error_code.name, answer.records, answer.high_watermark) == ("none", b"", 0)


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(
    topic: str, raw: Any, raw_at: Callable[[str], Any], kafka: Any
) -> None:
    size = len(batch(b"x" * 100))
    raw.send(raw.request_frame(FETCH, 12, **fetch_fields(max_wait_ms=20_000, min_bytes=3 * size)))
    writer = raw_at(kafka.bootstrap)
    for _ in range(2):
        writer.request(PRODUCE, 9, **produce_fields(batch(b"x" * 100)))
    assert not raw.has_something_to_read()
    writer.request(PRODUCE, 9, **produce_fields(batch(b"x" * 100)))
    assert len(fetched(raw.receive(FETCH, 12)).records) == 3 * size


def test_a_fetch_waits_no_longer_and_gets_no_more_than_the_broker_allows(
    raw_at: Callable[[str], Any], kafka_at: Callable[[str], Any]
) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), fetch_wait_ms_max=50, fetch_bytes_max=1_000)
    with Broker(config=config) as broker:
        kafka_at(broker.bootstrap).create_topic("wire")
        client = raw_at(broker.bootstrap)
        client.socket.settimeout(10)
        assert fetched(client.request(FETCH, 12, **fetch_fields(max_wait_ms=3_600_000))).records == b""
        for _ in range(10):
            client.request(PRODUCE, 9, **produce_fields(batch(b"x" * 300)))
        size = len(batch(b"x" * 300))
        assert len(fetched(client.request(FETCH, 12, **fetch_fields())).records) == 1_000 // size * size


def test_a_parked_fetch_is_told_when_its_topic_is_deleted(topic: str, raw: Any, kafka: Any) -> None:
    raw.send(raw.request_frame(FETCH, 12, **fetch_fields(max_wait_ms=20_000)))
    kafka.admin.delete_topics(["wire"])["wire"].result(30)
    assert fetched(raw.receive(FETCH, 12)).error_code.name == "unknown_topic_or_partition"


@pytest.mark.parametrize("offset", [-1, 1, 2**40])
def test_a_fetch_out_of_range_says_what_the_range_is(topic: str, raw: Any, offset: int) -> None:
    answer = fetched(raw.request(FETCH, 12, **fetch_fields(offset=offset, max_wait_ms=5_000)))
    assert (answer.error_code.name, answer.high_watermark, answer.log_start_offset) == (
        "offset_out_of_range",
        0,
        0,
    )


def test_topics_are_known_by_id_in_recent_versions(topic: str, raw: Any) -> None:
    described = raw.request(METADATA, 12, topics=None, include_topic_authorized_operations=False).topics[0]
    produce: Any = kio.schema.produce.v13.request
    fetch: Any = kio.schema.fetch.v17.request
    ids = (described.topic_id, uuid.uuid4())
    written = [
        raw.request(
            PRODUCE,
            13,
            **{
                **produce_fields(b""),
                "topic_data": (
                    produce.TopicProduceData(
                        topic_id=topic_id,
                        partition_data=(produce.PartitionProduceData(index=0, records=batch(b"x")),),
                    ),
                ),
            },
        )
        for topic_id in ids
    ]
    assert [produced(answer) for answer in written] == [("none", 0), ("unknown_topic_id", -1)]
    read = [
        raw.request(
            FETCH,
            17,
            **{
                **fetch_fields(),
                "topics": (
                    fetch.FetchTopic(
                        topic_id=topic_id,
                        partitions=(
                            fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000),
                        ),
                    ),
                ),
            },
        )
        for topic_id in ids
    ]
    assert [fetched(answer).error_code.name for answer in read] == ["none", "unknown_topic_id"]
    assert len(fetched(read[0]).records) == len(batch(b"x"))


def test_what_was_written_comes_back_byte_for_byte_but_for_its_offset(topic: str, raw: Any) -> None:
    raw.request(PRODUCE, 9, **produce_fields(batch(b"first")))
    records = batch(b"second")
    raw.request(PRODUCE, 9, **produce_fields(records))
    read = fetched(raw.request(FETCH, 12, **fetch_fields(offset=1))).records
    assert read[16:] == records[16:]
    assert struct.unpack_from(">q", read)[0] == 1


def test_an_unknown_version_of_api_versions_is_answered_with_what_is_offered(raw: Any) -> None:
    raw.send(struct.pack(">ihhih", 10, API_VERSIONS, 99, 5, -1))
    frame = raw.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code) == (5, 35)
    assert count > 15


@pytest.mark.parametrize("version", range(5))
def test_api_versions_offers_what_kafka_offers(raw: Any, version: int) -> None:
    fields = {"client_software_name": "raw", "client_software_version": "1.0"} if version >= 3 else {}
    raw.send(raw.request_frame(API_VERSIONS, version, **fields))
    answer = raw.receive(API_VERSIONS, version)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert (offered[PRODUCE], offered[FETCH], offered[METADATA]) == ((0, 13), (4, 18), (0, 13))


def test_api_versions_refuses_a_client_without_a_name(raw: Any) -> None:
    answer = raw.request(API_VERSIONS, 3, client_software_name="", client_software_version="1.0")
    assert answer.error_code.name == "invalid_request"


def test_metadata_of_version_0_lists_all_topics_for_an_empty_list(topic: str, raw: Any) -> None:
    assert [each.name for each in raw.request(METADATA, 0, topics=()).topics] == ["wire"]
    assert raw.request(METADATA, 1, topics=()).topics == ()
    assert [each.name for each in raw.request(METADATA, 1, topics=None).topics] == ["wire"]
