"""What pipelines read: several topics, other formats than JSON, from where, how much, and with a log-in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
import headrace.streams.queries as queries_module
from headrace import Broker
from headrace.config import BrokerConfig, StreamsConfig, TlsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.starts import settle_starts
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

WITHIN_S = 240.0

StartQueries = Callable[..., Queries]
BOTH_MODES = pytest.mark.parametrize("realtime", [True, False], ids=["real-time", "micro-batch"])


lines = hr.topic("lines", format="text", partitions=1)


@hr.pipeline(writes=hr.topic("line-copies", partitions=1))
def line_copies(lines: DataFrame) -> DataFrame:
    return lines.select("value")


RunQueries = Callable[..., Queries]


@pytest.fixture
def run_queries(spark: SparkSession) -> RunQueries:
    """Start a pipeline with settings of its own."""

    def run(config: StreamsConfig, pipeline: hr.Pipeline[Any], *, realtime: bool) -> Queries:
        plan = make_plan([pipeline])
        ensure_topics(config, plan.topics())
        queries = Queries(session=spark, config=config, realtime=realtime)
        queries.start(plan)
        queries.await_started()
        return queries

    return run


def test_several_topics_are_read_as_one_from_what_comes_after_the_start(
    kafka: Any, config: StreamsConfig, start: StartQueries
) -> None:
    regions = hr.topic(["north", "south"], schema="id string not null", start="latest", partitions=1)

    @hr.pipeline(writes=hr.topic("all", partitions=1), reads={"regions": regions})
    def everything(regions: DataFrame) -> DataFrame:
        return regions.select("id", F.col("_kafka.topic").alias("from"))

    ensure_topics(config, make_plan([everything]).topics())
    kafka.produce("north", [(None, '{"id": "old"}'), (None, "old")])
    start(everything, realtime=False)
    kafka.produce("north", [(None, '{"id": "n"}')])
    kafka.produce("south", [(None, '{"id": "s"}'), (None, "bad")])

    rows = [json.loads(record.value) for record in kafka.read_count("all", 2)]
    assert sorted((row["from"], row["id"]) for row in rows) == [("north", "n"), ("south", "s")]
    assert [letter.value for letter in kafka.read_count("south.dead-letters", 1)] == [b"bad"]
    kafka.read_count("north.dead-letters", 0)


def test_a_topic_that_grows_while_it_is_being_read_first_and_then_gets_another_schema_is_read_whole(
    kafka: Any,
    config: StreamsConfig,
    start: StartQueries,
    committed: Callable[[str], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = hr.topic("readings", schema="id string not null", start="latest", partitions=1)

    def copies(topic: hr.Topic) -> hr.Pipeline[Any]:
        pipeline = hr.pipeline(writes=hr.topic("copies", partitions=1), name="copies", reads={"rows": topic})
        return pipeline(lambda rows: rows.select("id"))

    growths = [2]

    def settle_and_grow(*arguments: Any) -> Any:
        settled = settle_starts(*arguments)
        if growths:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            admin.create_partitions([NewPartitions("readings", growths.pop())])["readings"].result()
            produce('{"id": "grown"}', partition=1)
        return settled

    def produce(value: str, *, partition: int) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce("readings", value, partition=partition)
        assert producer.flush(60) == 0

    monkeypatch.setattr(queries_module, "settle_starts", settle_and_grow)
    ensure_topics(config, make_plan([copies(readings)]).topics())
    produce('{"id": "old"}', partition=0)
    produce("old", partition=0)
    queries = start(copies(readings), realtime=False)
    produce("bad", partition=0)
    produce('{"id": "behind it"}', partition=0)
    values = [record.value for record in kafka.read_count("copies", 2)]
    assert sorted(values) == [b'{"id":"behind it"}', b'{"id":"grown"}']
    assert [letter.value for letter in kafka.read_count("readings.dead-letters", 1)] == [b"bad"]
    committed("copies")
    queries.stop()

    produce("bad while it was stopped", partition=0)
    produce('{"id": "last"}', partition=1)
    start(copies(replace(readings, schema="id string not null, more int")), realtime=False)
    assert kafka.read_count("copies", 3)[-1].value == b'{"id":"last"}'
    letters = kafka.read_count("readings.dead-letters", 2)
    assert [letter.value for letter in letters] == [b"bad", b"bad while it was stopped"]


@BOTH_MODES
def test_text_and_bytes_are_read_as_they_are(kafka: Any, start: StartQueries, *, realtime: bool) -> None:
    blobs = hr.topic("blobs", format="bytes", partitions=1)

    @hr.pipeline(writes=hr.topic("shouted", partitions=1))
    def shouted(lines: DataFrame) -> DataFrame:
        return lines.select(F.upper("value").alias("line"))

    @hr.pipeline(writes=hr.topic("hexed", key="key", partitions=1), reads={"blobs": blobs})
    def hexed(blobs: DataFrame) -> DataFrame:
        return blobs.select(F.col("_kafka.key").cast("string").alias("key"), F.hex("value").alias("hex"))

    kafka.produce("lines", [(None, "grüezi"), (None, b"\xff"), (None, ""), (None, None)])
    kafka.produce("blobs", [("a", b"\xff\x00"), ("b", None)])
    start(shouted, hexed, realtime=realtime)

    assert [json.loads(one.value)["line"] for one in kafka.read_count("shouted", 2)] == ["GRÜEZI", ""]
    dead = kafka.read_count("lines.dead-letters", 2)
    assert [(one.value, one.headers["headrace.cause"]) for one in dead] == [
        (b"\xff", b"the value is not UTF-8"),
        (None, b"the value is null (a tombstone)"),
    ]
    assert [(one.key, json.loads(one.value)["hex"]) for one in kafka.read_count("hexed", 2)] == [
        (b"a", "FF00"),
        (b"b", None),
    ]


@BOTH_MODES
def test_what_a_transaction_wrote_that_was_given_up_is_not_read(
    kafka: Any, config: StreamsConfig, start: StartQueries, *, realtime: bool
) -> None:
    ensure_topics(config, make_plan([line_copies]).topics())
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    for text, end in (
        ("first", producer.commit_transaction),
        ("given up", producer.abort_transaction),
        ("second", producer.commit_transaction),
        ("given up at last", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce("lines", text)
        producer.flush()
        end()
    queries = start(line_copies, realtime=realtime)

    kafka.read_count("line-copies", 2)
    kafka.produce("lines", [(None, "third")])
    values = [json.loads(record.value)["value"] for record in kafka.read_count("line-copies", 3)]
    assert values == ["first", "second", "third"]
    queries.check()


def test_a_batch_reads_no_more_than_the_topic_allows(kafka: Any, start: StartQueries) -> None:
    limited = hr.topic("lines", format="text", partitions=1, max_records_per_batch=2)
    copies = hr.pipeline(writes=hr.topic("copies", partitions=1), name="copies", reads={"lines": limited})(
        line_copies.function
    )

    kafka.produce("lines", [(None, str(number)) for number in range(5)])
    queries = start(copies, realtime=False)
    kafka.read_count("copies", 5)

    query = queries.running["copies"]
    eventually(
        lambda: sum(one["numInputRows"] for one in query.recentProgress) >= 5,
        "the report of all batches",
        within_s=WITHIN_S,
    )
    assert [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]] == [2, 2, 1]


@BOTH_MODES
def test_a_broker_that_is_gone_for_a_moment_is_awaited(
    tmp_path: Path, connect: Any, run_queries: RunQueries, *, realtime: bool
) -> None:
    with Broker(tmp_path / "broker") as broker:
        address = broker.address
        kafka = connect(broker.bootstrap)
        kafka.produce("lines", [(None, "before")])
        config = StreamsConfig(bootstrap=broker.bootstrap, data_dir=tmp_path, realtime_batch_s=5)
        queries = run_queries(config, line_copies, realtime=realtime)
        kafka.read_count("line-copies", 1)
    with Broker(tmp_path / "broker", config=BrokerConfig(listen=address)) as broker:
        kafka = connect(broker.bootstrap)
        kafka.produce("lines", [(None, "after")])

        # In real-time mode, and at least once, the first may come again.
        kafka.read("line-copies", lambda found: any(one.value == b'{"value":"after"}' for one in found))
        queries.check()
        queries.stop()


def test_a_secured_broker_is_read_and_written(tmp_path: Path, connect: Any, run_queries: RunQueries) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "broker.pem"))
    (tmp_path / "broker.pem").chmod(0o600)
    tls = TlsConfig(certificate=tmp_path / "broker.pem", key=tmp_path / "broker.pem")
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": 'se"cr\\et',
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    with Broker(users={"ann": login["sasl.password"]}, tls=tls) as broker:
        config = StreamsConfig(bootstrap=broker.bootstrap, data_dir=tmp_path, client_options=login)
        queries = run_queries(config, line_copies, realtime=False)
        kafka = connect(broker.bootstrap, login)
        kafka.produce("lines", [(None, "a"), (None, b"\xff")])

        assert [record.value for record in kafka.read_count("line-copies", 1)] == [b'{"value":"a"}']
        assert [record.value for record in kafka.read_count("lines.dead-letters", 1)] == [b"\xff"]
        queries.stop()
