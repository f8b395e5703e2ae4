"""Batches in a table of PostgreSQL: each once, after any failure, and refused where they don't fit."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import StructType

import headrace.streams as hr
from headrace.errors import ConfigError, HeadraceError, PipelineError, PipelineFailed, StoreUnavailable
from headrace.streams.sinks.context import BatchWriter
from headrace.streams.sinks.postgres.connection import Connection, connect, explained
from headrace.streams.sinks.postgres.ledger import TableLedger, lock_key
from headrace.streams.sinks.postgres.table import ensure_table
from headrace.streams.sinks.stores import store_of
from headrace.testing.failpoints import failpoint

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]
NASTY = ["", "\\N", "NULL", '"', "a,b", "line\nbreak\r\n", "\n\\.\n", "\\.", "tab\t", "'", "ümläut 🦆", " x "]
PLACES = ("pipeline.batch", "pipeline.task.begun", "pipeline.task.produced", "pipeline.task.committed")


def numbered(spark: SparkSession, rows: range, partitions: int = 3) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, partitions).select(
        F.concat(F.lit("k"), F.col("id")).alias("k"), F.col("id").alias("v")
    )


def test_appended_rows_come_out_as_they_went_in_by_their_types(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    schema = (
        "n int, t string, b boolean, y tinyint, i smallint, l bigint, f float, d double, m decimal(38,18), "
        "x binary, day date, at timestamp, local timestamp_ntz, s struct<a: int, b: array<string>>, "
        'g map<string, double>, `odd "name` int, `a.b` int'
    )
    row = (
        *(True, 1, -2, 2**63 - 1, 0.5, float("nan"), Decimal("-12345678901234567890.123456789012345678")),
        *(b"\x00\xff\\", date(9999, 12, 31), datetime(1890, 1, 1, 0, 0, 0, 1, UTC)),
        *(datetime(2026, 1, 2, 3, 4, 5, 6), {"a": 1, "b": ["x", None]}, {"k": 1.5}, 7, 8),  # noqa: DTZ001 - local
    )
    nulls = (None,) * 15
    rows = [(number, text, *row) for number, text in enumerate(NASTY)] + [(len(NASTY), None, *nulls)]
    table = hr.postgres_table(database.dsn, database.table("all_types"))
    given = spark.createDataFrame(rows, schema)
    assert writer(table).write(given, 0) == len(rows)
    found = database.execute("SELECT * FROM SCHEMA.all_types ORDER BY n")
    texts = [text for _n, text, *_rest in found]
    assert texts == [*NASTY, None]
    *others, struct, mapping, odd, dotted = found[0][2:]
    assert isnan(others.pop(5))
    assert others == [*row[:5], *row[6:11]]
    assert (struct, mapping, odd, dotted) == ({"a": 1, "b": ["x", None]}, {"k": 1.5}, 7, 8)
    assert found[-1][2:] == nulls
    read = store_of(table).read(spark, table, given.schema)
    assert read.schema == given.schema
    whole = F.to_json(F.struct(*(f"`{name}`" for name in given.columns)))
    assert sorted(read.select(whole).collect()) == sorted(given.select(whole).collect())


def test_the_last_row_of_a_key_stays_and_deletes_remove(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    table = hr.postgres_table(database.dsn, database.table("prices"), key=["shop", "item"])
    orders = writer(table)
    schema = "shop int, item string, price double, _delete boolean"
    first = [(1, "a", 1.0, False), (1, "b", 2.0, None), (2, "a", 3.0, False), (1, "a", 4.0, False)]
    orders.write(spark.createDataFrame(first, schema).coalesce(1), 0)
    assert database.execute("SELECT * FROM SCHEMA.prices ORDER BY 1, 2") == [
        (1, "a", 4.0),
        (1, "b", 2.0),
        (2, "a", 3.0),
    ]
    second = [
        *((1, "a", None, True), (9, "none", None, True)),
        *((1, "b", None, True), (1, "b", 5.0, False), (2, "a", 6.0, False), (2, "a", None, True)),
    ]
    orders.write(spark.createDataFrame(second, schema).coalesce(1), 1)
    assert database.execute("SELECT * FROM SCHEMA.prices") == [(1, "b", 5.0)]


def test_a_batch_that_fails_anywhere_and_is_cut_differently_afterwards_is_written_once(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    table = hr.postgres_table(database.dsn, database.table("once"), writers=2)
    grown = hr.postgres_table(database.dsn, database.table("once"), writers=3)
    for batch_id, place in enumerate((*PLACES, "pipeline.written")):
        rows = range(batch_id * 100, batch_id * 100 + 100)
        with failpoint(place, error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
            writer(table).write(numbered(spark, rows, partitions=2), batch_id)
        writer(grown).write(numbered(spark, rows, partitions=7), batch_id)
    found = [value for (value,) in database.execute("SELECT v FROM SCHEMA.once ORDER BY v")]
    assert found == list(range(500))


def test_a_batch_that_is_done_is_skipped_and_a_new_checkpoint_begins_afresh(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    table = hr.postgres_table(database.dsn, database.table("again"))
    assert writer(table).write(numbered(spark, range(10)), 4) == 10
    assert writer(table).write(numbered(spark, range(10)), 4) == 0
    with pytest.raises(PipelineError, match="checkpoint was put back"):
        writer(table).write(numbered(spark, range(10)), 3)
    assert writer(table, query_id="query-2").write(numbered(spark, range(10)), 0) == 10
    assert database.execute("SELECT count(*) FROM SCHEMA.again") == [(20,)]


def test_a_run_that_was_replaced_can_write_no_more(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    table = hr.postgres_table(database.dsn, database.table("runs"))
    old, new = writer(table), writer(table, query_id="query-2")
    old.write(numbered(spark, range(10)), 0)
    new.write(numbered(spark, range(10, 20)), 0)
    with pytest.raises(PipelineError, match="another run of pipeline orders has taken over"):
        old.write(numbered(spark, range(20, 30)), 1)
    assert database.execute("SELECT count(*) FROM SCHEMA.runs") == [(20,)]


def test_a_zombie_that_holds_a_share_is_ended(spark: SparkSession, database: Any, writer: MakeWriter) -> None:
    table = hr.postgres_table(database.dsn, database.table("zombies"), writers=1)
    orders: Any = writer(table)
    orders._ledger = _impatient(orders._ledger)
    orders.write(numbered(spark, range(5)), 0)
    zombie = connect(database.dsn)
    zombie.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key("orders", table.name, 0),))
    orders.write(numbered(spark, range(5, 9)), 1)
    assert database.execute("SELECT count(*) FROM SCHEMA.zombies") == [(9,)]
    with pytest.raises(psycopg.errors.AdminShutdown):
        zombie.execute("SELECT 1")


def _impatient(ledger: Any) -> Any:
    return type(ledger)(
        schema_name=ledger.schema_name, pipeline=ledger.pipeline, target=ledger.target, lock_s_max=0.1
    )


def test_random_crashes_and_retries_leave_each_key_at_its_last_value(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    chance = random.Random(5)
    table = hr.postgres_table(database.dsn, database.table("chance"), key=["k"], writers=2)
    expected: dict[str, int] = {}
    for batch_id in range(6):
        changes = [
            (f"k{chance.randrange(20)}", chance.randrange(99), chance.random() < 0.3) for _ in range(30)
        ]
        for key, value, is_deleted in changes:
            expected.pop(key, None)
            if not is_deleted:
                expected[key] = value
        place = chance.choice([*PLACES, "pipeline.written", None])
        frame = spark.createDataFrame(changes, "k string, v int, _delete boolean").coalesce(1)
        if place is not None:
            with failpoint(place, error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
                writer(table).write(frame, batch_id)
        writer(table).write(frame, batch_id)
    assert dict(database.execute("SELECT k, v FROM SCHEMA.chance")) == expected


def test_rows_that_do_not_fit_the_table_are_refused_with_all_reasons(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    database.execute(
        "CREATE TABLE SCHEMA.fixed (k text, v int, owner text NOT NULL, at timestamptz DEFAULT now())"
    )
    table = hr.postgres_table(database.dsn, database.table("fixed"), key=["k"])
    with pytest.raises(PipelineError) as refused:
        writer(table).write(numbered(spark, range(3)).withColumn("more", F.lit(1.5)), 0)
    for reason in (
        "the table has no column more, which would be double precision",
        "column v is integer, and the pipeline returns bigint",
        "column owner takes no null and has no default",
        "no unique index on (k)",
    ):
        assert reason in str(refused.value)


def test_a_bad_row_fails_its_batch_and_says_why_and_the_corrected_batch_goes_in_whole(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    database.execute("CREATE TABLE SCHEMA.strict (k varchar(8) PRIMARY KEY, v bigint)")
    table = hr.postgres_table(database.dsn, database.table("strict"), key=["k"], writers=2)
    rows = numbered(spark, range(10))
    for spoilt, reason in (
        ("if(v = 5, null, k)", "key column k is null"),
        ("if(v = 5, 'zero \\0 byte', k)", "invalid byte sequence"),
        ("if(v = 5, repeat('x', 9), k)", "value too long"),
    ):
        with pytest.raises(PipelineFailed, match=reason):
            writer(table).write(rows.withColumn("k", F.expr(spoilt)), 0)
    writer(table).write(rows, 0)
    assert database.execute("SELECT count(*), sum(v) FROM SCHEMA.strict") == [(10, 45)]


def test_a_password_is_never_told(database: Any) -> None:
    secret = "hunter2"
    for dsn, kind in (
        (f"postgresql://somebody:{secret}@127.0.0.1:1/x", StoreUnavailable),
        (f"{secret} is not a dsn", ConfigError),
        (database.dsn.replace("open sesame", secret), ConfigError),
    ):
        with pytest.raises(HeadraceError) as failed:
            connect(dsn, within_s=0.1)
        assert isinstance(failed.value, kind)
        assert secret not in str(failed.value)
        assert failed.value.__cause__ is None
        assert secret not in repr(hr.postgres_table(dsn, "t"))


def test_a_connection_that_is_lost_in_a_batch_is_no_reason_to_end(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    database.execute("CREATE TABLE SCHEMA.lossy (k text, v bigint)")
    database.execute("CREATE SEQUENCE SCHEMA.losses")
    database.execute(
        "CREATE FUNCTION SCHEMA.lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF nextval('SCHEMA.losses') < 3 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
        "RETURN NULL; END $$"
    )
    database.execute("CREATE TRIGGER lose AFTER INSERT ON SCHEMA.lossy EXECUTE FUNCTION SCHEMA.lose()")
    table = hr.postgres_table(database.dsn, database.table("lossy"), writers=1)
    assert writer(table).write(numbered(spark, range(100)), 0) == 100
    assert database.execute("SELECT count(*), count(DISTINCT v) FROM SCHEMA.lossy") == [(100, 100)]
    database.execute("ALTER SEQUENCE SCHEMA.losses RESTART WITH -9999 MINVALUE -9999")
    with pytest.raises(StoreUnavailable, match="terminating connection"):
        writer(table).write(numbered(spark, range(100)), 1)


def test_who_may_not_create_tables_can_write_those_that_are_there(
    spark: SparkSession, database: Any, writer: MakeWriter
) -> None:
    role, password = f"{database.schema}_writer", "s3cret"
    table = database.table("granted")
    writer(hr.postgres_table(database.dsn, table)).write(numbered(spark, range(5)), 0)
    database.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
    database.execute(f"GRANT USAGE ON SCHEMA {database.schema} TO {role}")
    tables = f"ALL TABLES IN SCHEMA {database.schema}"
    database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}")
    dsn = database.dsn.replace("user=headrace", f"user={role}").replace("open sesame", password)
    writer(hr.postgres_table(dsn, table)).write(numbered(spark, range(5, 9)), 1)
    database.execute(f"DROP OWNED BY {role}")
    database.execute(f"DROP ROLE {role}")
    assert database.execute("SELECT count(*) FROM SCHEMA.granted") == [(9,)]


def test_starts_at_the_same_time_create_tables_once(database: Any) -> None:
    table = hr.postgres_table(database.dsn, database.table("together"), key=["k"])
    ledger = TableLedger(schema_name=database.schema, pipeline="orders", target=table.name)
    schema = StructType().add("k", "string").add("v", "long")
    barrier = threading.Barrier(6)

    def create(_number: int) -> None:
        with closing(connect(database.dsn)) as connection:
            barrier.wait()
            ensure_table(connection, table, schema, pipeline="orders")
            ledger.create(connection)
            connection.commit()

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(create, range(6))) == [None] * 6
    found = database.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", database.schema)
    assert sorted(name for (name,) in found) == ["headrace_batches", "together"]


def test_a_connection_is_asked_for_without_settings_that_a_pooler_refuses(database: Any) -> None:
    with closing(connect(database.dsn)) as connection:
        assert "options" not in connection.info.get_parameters()
        assert connection.info.transaction_status == TransactionStatus.IDLE
        assert connection.execute("SHOW datestyle").fetchone() == ("ISO, MDY",)


def test_errors_of_the_server_are_told_as_passing_or_lasting(database: Any) -> None:
    with (
        connect(database.dsn) as connection,
        pytest.raises(PipelineFailed, match="asking failed on PostgreSQL headr"),
    ):
        _ask(connection, "SELECT 1/0", database.dsn)
    with connect(database.dsn) as connection, pytest.raises(StoreUnavailable, match="terminating connection"):
        _ask(connection, "SELECT pg_terminate_backend(pg_backend_pid())", database.dsn)


def _ask(connection: Connection, statement: LiteralString, dsn: str) -> None:
    with explained(dsn, "asking"):
        connection.execute(statement)


def test_a_function_of_a_users_own_writes_each_batch_once(database: Any) -> None:
    database.execute("CREATE TABLE SCHEMA.own (n int)")

    @hr.idempotent(
        "own", connect=lambda: psycopg.connect(database.dsn, options=f"-c search_path={database.schema}")
    )
    def write(rows: Any, batch_id: int, connection: psycopg.Connection) -> None:
        connection.execute("INSERT INTO own VALUES (%s)", (batch_id,))
        if rows is None:
            raise ValueError("no rows")

    for batch_id in (0, 0, 1, 1):
        write(object(), batch_id)  # type: ignore[arg-type] # stands in for a DataFrame
    with pytest.raises(ValueError, match="no rows"):
        write(None, 2)  # type: ignore[arg-type] # stands in for a DataFrame
    assert database.execute("SELECT n FROM SCHEMA.own ORDER BY n") == [(0,), (1,)]
