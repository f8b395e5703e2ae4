"""What is peculiar to a cache: fields, calls that are let in or not, servers that restart, rows too large."""

from __future__ import annotations

import json
import os
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from socket import AF_UNIX, SHUT_WR, create_server, socket
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis
import trustme
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import RedisConfig
from headrace.errors import ConfigError, PipelineError, PipelineFailed, PipelineReplaced, StoreUnavailable
from headrace.redis import EmbeddedRedis
from headrace.streams.side_files import SideFiles
from headrace.streams.sinks.cache import calls as calling
from headrace.streams.sinks.cache import connection as connecting
from headrace.streams.sinks.cache import writer as writing
from headrace.streams.sinks.cache.connection import connect
from headrace.streams.sinks.cache.fields import field_column, field_of
from headrace.streams.sinks.cache.ledger import CacheLedger
from headrace.streams.sinks.cache.state import note_key
from headrace.streams.sinks.cache.task import CacheTask
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.ledger import Batch
from headrace.streams.sinks.refused import REFUSED
from headrace.streams.sinks.stores import store_of
from headrace.streams.sinks.tasks import told
from headrace.streams.sinks.writers import batch_writer
from headrace.testing.redis import TestRedis

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]


def numbered(spark: SparkSession, rows: range) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, 2).select(
        F.col("id").cast("string").alias("k"), F.col("id").alias("v")
    )


def test_an_application_finds_a_row_by_its_key_and_reads_json(
    spark: SparkSession, headrace_redis: TestRedis, writer: MakeWriter
) -> None:
    rows = [(1, "a:b", 0.5, None), (1, "c\\d", 1e20, [1])]
    frame = spark.createDataFrame(rows, "order int, line string, price double, tags array<int>")
    writer(hr.cache(headrace_redis.url, "lines", key=["order", "line"])).write(frame, 0)
    assert headrace_redis.client.hget("lines", "1:a\\:b") == (
        '{"order":1,"line":"a:b","price":0.5,"tags":null}'
    )
    assert set(headrace_redis.client.hkeys("lines")) == {"1:a\\:b", "1:c\\\\d"}


def test_fields_are_the_same_on_spark_and_without(spark: SparkSession) -> None:
    values = [("a", 1), ("a:b", -2), ("\\", 3), (":\\:", 4), ("", 5), ("ümläut 🦆", 6)]
    frame = spark.createDataFrame(values, "t string, `n.n` bigint")
    several = frame.select(field_column(frame, ["t", "n.n"])).collect()
    assert [field for (field,) in several] == [field_of([text, str(number)]) for text, number in values]
    assert [field for (field,) in frame.select(field_column(frame, ["t"])).collect()] == [
        field_of([text]) for text, _ in values
    ]
    nulls = spark.createDataFrame([("a", None), (None, 1)], "t string, n int")
    assert [field for (field,) in nulls.select(field_column(nulls, ["t", "n"])).collect()] == [None, None]
    schema = "b binary, d date, m decimal(5,2), f double, at timestamp, o boolean"
    other = spark.createDataFrame(
        [(b"\xff" * 100, date(2026, 1, 2), Decimal("1.50"), 1e9, None, True)], schema
    )
    texts = other.select(*(field_column(other, [name]) for name in other.columns)).collect()[0]
    assert tuple(texts) == ("/" * 132 + "/w==", "2026-01-02", "1.50", "1.0E9", None, "true")


def test_a_row_that_is_too_large_is_put_aside_and_the_others_are_written(
    spark: SparkSession, headrace_redis: TestRedis, tmp_path: Path, writer: MakeWriter
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    table = hr.cache(headrace_redis.url, "small", key="k", writers=2)
    rows = numbered(spark, range(3)).withColumn("k", F.expr("if(v = 2, repeat('y', 70000), k)"))
    context = WriteContext(
        pipeline="orders",
        query_id="query-1",
        bootstrap="127.0.0.1:1",
        guarantee="exactly-once",
        checkpoint=tmp_path,
    )
    # It was cut off before, with more writers.
    stale = pa.table({"key": ["y"], "row": ["{}"], "cause": ["too long"]})
    SideFiles.of(tmp_path, REFUSED).write(0, "7", stale)
    batch_writer(table, context).write(rows, 0)
    assert set(headrace_redis.client.hkeys("small")) == {"0", "1"}
    (part,) = (tmp_path / "side" / REFUSED / "0").glob("*.parquet")
    (refused,) = pq.read_table(part, partitioning=None).to_pylist()
    assert refused["key"] == "y" * 70_000
    assert refused["row"] == json.dumps({"k": "y" * 70_000, "v": 2}, separators=(",", ":"))
    assert "its key has 70,000 bytes, and a cache takes 65,536" in refused["cause"]
    # Where nobody would see them, such rows end the batch.
    with pytest.raises(PipelineFailed, match="its key has 70,000 bytes"):
        writer(table, pipeline="others").write(rows.where("v = 2"), 0)


def test_a_task_of_an_earlier_batch_or_run_can_write_no_more(headrace_redis: TestRedis) -> None:
    table = hr.cache(headrace_redis.url, "fenced", key="k")
    ledger = CacheLedger(cache=table, pipeline="orders")
    batch = Batch(pipeline="orders", query_id="q", batch_id=0, digest="-", is_first=True)
    run = ledger.begin_run(batch)

    def task(run: int, batch_id: int) -> CacheTask:
        return CacheTask(cache=table, pipeline="orders", run_number=run, batch_id=batch_id, refused=None)

    def write(run: int, batch_id: int, value: str) -> None:
        with connect(table.url) as client:
            script = client.register_script(calling.WRITE)
            arguments = calling.arguments(run, batch_id, [(b"k", value.encode())])
            found = script(keys=["fenced", ledger.key, note_key("fenced")], args=arguments)
            task(run, batch_id)._refuse_closed(*found)

    with pytest.raises(StoreUnavailable, match="batch 0 of pipeline orders is not open"):
        write(run, 0, "before it was opened")
    assert ledger.open_batch(batch, run)
    write(run, 0, "right")
    assert ledger.close_batch(batch, run)
    with pytest.raises(StoreUnavailable, match="is not open any more"):
        write(run, 0, "late")
    assert ledger.begin_run(batch) == run + 1
    with pytest.raises(PipelineReplaced):
        write(run, 0, "replaced")
    assert headrace_redis.client.hgetall("fenced") == {"k": "right"}
    headrace_redis.client.flushall()
    with pytest.raises(PipelineError, match="has lost rows"):
        write(run, 0, "lost")
    assert headrace_redis.client.keys() == []


def test_rows_that_another_pipeline_has_removed_are_not_missed_and_those_that_were_evicted_are(
    spark: SparkSession, headrace_redis: TestRedis, writer: MakeWriter
) -> None:
    table = hr.cache(headrace_redis.url, "shared", key="k", writers=2)
    orders = writer(table)
    orders.write(numbered(spark, range(4)), 0)
    removed = numbered(spark, range(4)).withColumn("_delete", F.lit(True))
    writer(table, pipeline="orders.repair").write(removed, 0)
    assert not headrace_redis.client.exists("shared")
    assert orders.write(numbered(spark, range(3)), 1) == 3
    assert not headrace_redis.client.exists(note_key("shared"))
    headrace_redis.client.delete("shared")
    with pytest.raises(PipelineError, match="it had 3 rows and has none"):
        orders.write(numbered(spark, range(3)), 2)


def test_what_no_pipeline_has_written_is_told_by_its_field(
    spark: SparkSession, headrace_redis: TestRedis, writer: MakeWriter
) -> None:
    table, rows = hr.cache(headrace_redis.url, "spoilt", key="k"), numbered(spark, range(3))
    writer(table).write(rows, 0)
    for value in ("nonsense", "[]", b"\xff"):
        headrace_redis.client.hset("spoilt", "1", value)
        with pytest.raises(PipelineError, match=r"the field 1 of the cache spoilt .* remove it"), told():
            store_of(table).read(spark, table, rows.schema).collect()


def test_a_batch_in_which_the_server_was_restarted_is_written_again(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "AGAIN_PAUSE_S", 0.0)
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis(RedisConfig(data_dir=tmp_path)))
        table = hr.cache(server.url, "restarted", key="k", writers=1)
        orders = writer(table)
        orders.write(numbered(spark, range(10)), 0)
        close = CacheLedger.close_batch

        def restarting(ledger: CacheLedger, batch: Batch, run: int) -> bool:
            os.kill(server.pid, signal.SIGKILL)
            server.stop()
            server.start()
            return close(ledger, batch, run)

        with monkeypatch.context() as patched:
            patched.setattr(CacheLedger, "close_batch", restarting)
            with pytest.raises(StoreUnavailable, match="was restarted, or replaced by another server"):
                orders.write(numbered(spark, range(20)), 1)
        # The pipeline starts anew, and all of the batch is written.
        assert writer(table).write(numbered(spark, range(20)), 1) == 20
        with redis.Redis.from_url(server.url) as client:
            assert client.hlen("restarted") == 20


def test_a_server_that_is_down_is_waited_for_and_then_told(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "AGAIN_PAUSE_S", 0.0)
    server = EmbeddedRedis(RedisConfig(data_dir=tmp_path)).start()
    orders = writer(hr.cache(server.url, "down", key="k", writers=1))
    orders.write(numbered(spark, range(3)), 0)
    server.stop()
    back = threading.Timer(0.3, server.start)
    back.start()
    assert orders.write(numbered(spark, range(3, 6)), 1) == 3
    back.join()
    server.stop()
    monkeypatch.setattr(connecting, "CONNECT_S_MAX", 0.1)
    with pytest.raises(StoreUnavailable, match="failed on Redis /"):
        orders.write(numbered(spark, range(9)), 2)


def test_a_key_that_is_no_hash_and_types_that_would_not_come_back_are_refused(
    spark: SparkSession, headrace_redis: TestRedis, writer: MakeWriter
) -> None:
    headrace_redis.client.set("taken", "by somebody")
    with pytest.raises(PipelineError, match="the key is there already and is no hash"):
        writer(hr.cache(headrace_redis.url, "taken", key="k")).write(numbered(spark, range(1)), 0)
    odd = numbered(spark, range(1)).withColumn("m", F.expr("map(X'00', 1)"))
    with pytest.raises(PipelineError, match="the column m as map<binary,int>, and a cache can't hold"):
        writer(hr.cache(headrace_redis.url, "odd", key="k")).write(odd, 0)
    headrace_redis.client.set("{foreign}.headrace.orders", "no hash")
    with pytest.raises(PipelineError, match="is no hash"):
        writer(hr.cache(headrace_redis.url, "foreign", key="k")).write(numbered(spark, range(1)), 0)


@contextmanager
def with_tls(path: str, context: ssl.SSLContext) -> Iterator[int]:
    """A port that speaks TLS, for one connection to a socket of the file system."""
    with create_server(("127.0.0.1", 0)) as server:

        def carry(source: Any, target: Any) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
                target.shutdown(SHUT_WR)

        def serve() -> None:
            accepted, _ = server.accept()
            with (
                suppress(OSError),
                accepted,
                context.wrap_socket(accepted, server_side=True) as outer,
                socket(AF_UNIX) as inner,
            ):
                inner.connect(path)
                back = threading.Thread(target=carry, args=(inner, outer))
                back.start()
                carry(outer, inner)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_tls_is_spoken_and_the_servers_certificate_is_checked(
    headrace_redis: TestRedis, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    password, _, path = headrace_redis.url.removeprefix("unix://:").partition("?")[0].partition("@")
    with with_tls(path, context) as port:
        url = f"rediss://:{password}@127.0.0.1:{port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}"
        with connect(url, within_s=0) as client:
            assert client.set("by", "TLS")
    assert headrace_redis.client.get("by") == "TLS"
    with (
        with_tls(path, context) as port,
        pytest.raises(ConfigError, match="its certificate is not trusted"),
    ):
        connect(f"rediss://:{password}@127.0.0.1:{port}/0", within_s=0)
