"""Pipelines as queries: records in, records out, dead letters aside, and failures told in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError, PipelineFailed
from headrace.streams import plan_mode
from headrace.streams.plan_mode import COMPILED, INTERPRETED, MODE
from headrace.streams.queries import BEGUN_ANEW_MAX, Queries
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.window import Windowed
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

WITHIN_S = 240.0

StartQueries = Callable[..., Queries]
BOTH_MODES = pytest.mark.parametrize("realtime", [True, False], ids=["real-time", "micro-batch"])

orders = hr.topic(
    "orders",
    schema="id string not null, amount double, at timestamp",
    event_time="at",
    watermark="1 minute",
    partitions=1,
)
customers = hr.topic("customers", schema="id string not null")


@hr.pipeline(writes=hr.topic("copies", key="id", partitions=1))
def copies(orders: DataFrame) -> DataFrame:
    return orders.withColumns(
        {
            "from": F.concat_ws("/", "_kafka.topic", "_kafka.partition", "_kafka.offset"),
            "nothing": F.lit(None),
        }
    )


def order(number: str, amount: float = 1.0) -> tuple[str, str]:
    return number, json.dumps({"id": number, "amount": amount, "at": "2026-01-02T03:04:05.000006Z"})


def watch(queries: Queries) -> None:
    """Until a query fails."""
    eventually(queries.check, "the failure of a query", within_s=WITHIN_S)


@BOTH_MODES
def test_rows_come_out_as_json_with_the_key_and_all_their_columns(
    kafka: Any, start: StartQueries, *, realtime: bool
) -> None:
    kafka.produce("orders", [order("a")])
    start(copies, realtime=realtime)

    (record,) = kafka.read_count("copies", 1)

    assert record.key == b"a"
    assert json.loads(record.value) == {
        "id": "a",
        "amount": 1.0,
        "at": "2026-01-02T03:04:05.000006Z",
        "from": "orders/0/0",
        "nothing": None,
    }


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """In which mode the tasks of each batch were run, by topic. Small batches have 10 rows at most."""
    seen: dict[str, list[str]] = {}
    real = TopicWriter.write_records

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"mode": [context.getLocalProperty(MODE) or COMPILED]})

    def look(writer: TopicWriter, records: DataFrame, batch_id: int) -> int:
        task = records.sparkSession.range(0, 1, numPartitions=1).mapInArrow(told, "mode string")
        seen.setdefault(writer._topic.name, []).append(task.collect()[0]["mode"])
        return real(writer, records, batch_id)

    monkeypatch.setattr(plan_mode, "SMALL_ROWS_MAX", 10)
    monkeypatch.setattr(TopicWriter, "write_records", look)
    return seen


def produce_and_await(kafka: Any, processed: Callable[..., None], sizes: Sequence[int]) -> None:
    """Produce so many orders at a time, and check that all come out."""
    for batch, size in enumerate(sizes):
        kafka.produce("orders", [order(f"{batch}-{number}") for number in range(size)])
        processed("copies", "orders")
    found = sorted(record.key.decode() for record in kafka.read_count("copies", sum(sizes)))
    assert found == sorted(f"{batch}-{number}" for batch, size in enumerate(sizes) for number in range(size))


def test_small_batches_are_interpreted_and_large_ones_compiled(
    kafka: Any, start: StartQueries, processed: Callable[..., None], modes: dict[str, list[str]]
) -> None:
    start(copies, realtime=False)
    produce_and_await(kafka, processed, (1, 1, 1, 2_000, 1, 1))

    first, second, third, *others, last = modes["copies"]
    assert first == COMPILED, "how large it is, is not known"
    assert second == third == last == INTERPRETED
    assert COMPILED in others, "some of the 2,000 came together"


def test_small_batches_of_operators_with_state_are_interpreted_too_and_go_on_with_what_compiled_ones_kept(
    kafka: Any, start: StartQueries, processed: Callable[..., None], modes: dict[str, list[str]]
) -> None:
    @hr.pipeline(writes=hr.topic("copies", key="id", partitions=1), name="copies")
    def counted(orders: DataFrame) -> DataFrame:
        return minutes(orders).agg(F.count("*").alias("n"))

    start(counted, realtime=False)
    for _ in range(3):
        kafka.produce("orders", [order("a")])
        processed("copies", "orders")

    assert [json.loads(record.value)["n"] for record in kafka.read_count("copies", 3)] == [1, 2, 3]
    first, *others = modes["copies"]
    assert first == COMPILED, "how large it is, is not known"
    assert set(others) == {INTERPRETED}


def minutes(orders: DataFrame) -> Windowed:
    """Windows that tell of each row."""
    return hr.window(orders, hr.tumbling("1 minute"), by="id", trigger=hr.early(rows=1))


def test_who_sets_how_spark_runs_plans_decides_on_all_batches(
    kafka: Any,
    spark: SparkSession,
    start: StartQueries,
    processed: Callable[..., None],
    modes: dict[str, list[str]],
) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    try:
        start(copies, realtime=False)
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")
    produce_and_await(kafka, processed, (1, 1, 1))

    assert set(modes["copies"]) == {COMPILED}


def with_names(orders: DataFrame) -> DataFrame:
    names = orders.sparkSession.range(50).select(
        F.col("id").cast("string").alias("id"), F.lit("x").alias("name")
    )
    return orders.drop("_kafka").join(F.broadcast(names), "id", "left")


def with_names_of_the_plan(orders: DataFrame) -> DataFrame:
    names = orders.sparkSession.sql("SELECT * FROM VALUES ('0-0', 'x') AS names(id, name)")
    return orders.drop("_kafka").join(F.broadcast(names), "id", "left")


def not_among_others(orders: DataFrame) -> DataFrame:
    orders.drop("_kafka").createOrReplaceTempView("some_orders")
    return orders.sparkSession.sql(
        "SELECT * FROM some_orders AS o "
        "WHERE NOT EXISTS (SELECT 1 FROM range(9) AS r WHERE string(r.id) = o.id)"
    )


def counted_with_names(orders: DataFrame) -> DataFrame:
    return with_names(minutes(orders).agg(F.count("*").alias("n")))


@pytest.mark.parametrize(
    "reads_a_table", [with_names, with_names_of_the_plan, not_among_others, counted_with_names]
)
def test_plans_that_read_tables_are_compiled_as_tables_are_large_however_small_the_batch(
    kafka: Any,
    start: StartQueries,
    processed: Callable[..., None],
    modes: dict[str, list[str]],
    reads_a_table: Callable[[DataFrame], DataFrame],
) -> None:
    @hr.pipeline(writes=hr.topic("copies", key="id", partitions=1), name="copies")
    def joined(orders: DataFrame) -> DataFrame:
        return reads_a_table(orders)

    start(joined, realtime=False)
    produce_and_await(kafka, processed, (1, 1, 1))

    assert set(modes["copies"]) == {COMPILED}


@BOTH_MODES
def test_records_that_can_not_be_decoded_go_to_the_dead_letters_as_they_were(
    kafka: Any, start: StartQueries, *, realtime: bool
) -> None:
    large = b"\xff" * 1_500_000
    kafka.produce(
        "orders",
        [order("a"), ("k", b'{"id": "b", "amount": "much"}'), (None, b"\xff"), ("t", None), ("l", large)],
    )
    queries = start(copies, realtime=realtime)

    dead = kafka.read_count("orders.dead-letters", 4)

    assert [(letter.key, letter.value) for letter in dead] == [
        (b"k", b'{"id": "b", "amount": "much"}'),
        (None, b"\xff"),
        (b"t", None),
        (b"l", large),
    ]
    assert [letter.headers["headrace.cause"].decode() for letter in dead] == [
        "does not fit its column: amount (double)",
        "the value is not UTF-8",
        "the value is null (a tombstone)",
        "the value is not UTF-8",
    ]
    assert [
        (
            letter.headers["headrace.topic"],
            letter.headers["headrace.partition"],
            letter.headers["headrace.offset"],
        )
        for letter in dead
    ] == [(b"orders", b"0", b"1"), (b"orders", b"0", b"2"), (b"orders", b"0", b"3"), (b"orders", b"0", b"4")]
    assert [record.key for record in kafka.read_count("copies", 1)] == [b"a"]
    queries.check()


def test_dead_letters_that_are_left_until_pipelines_have_begun_are_all_counted(
    kafka: Any, start: StartQueries
) -> None:
    kafka.produce("orders", [order("a"), (None, "bad"), (None, "worse")])
    queries = start(copies, realtime=False, pipelines_first=True)
    assert list(queries.running) == ["copies"]

    def counts() -> set[tuple[str, int, int | None]]:
        return {(one.query, one.input_row_count, one.output_row_count) for one in queries.progress()}

    def are_counted() -> bool:
        queries.check()
        queries.start_kept_back()
        return (orders.dead_letters_query, 3, 2) in counts()

    eventually(are_counted, lambda: f"two dead letters in {counts()}", within_s=WITHIN_S)


def test_pipelines_run_side_by_side_and_write_a_dead_letter_once(kafka: Any, start: StartQueries) -> None:
    @hr.pipeline(writes=hr.topic("large", partitions=1))
    def large(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 100").select("id")

    kafka.produce("orders", [order("a"), (None, "bad"), order("b", amount=200)])
    start(copies, large, realtime=True)

    assert len(kafka.read_count("copies", 2)) == 2
    assert [json.loads(record.value) for record in kafka.read_count("large", 1)] == [{"id": "b"}]
    assert len(kafka.read_count("orders.dead-letters", 1)) == 1


def test_a_topic_that_is_read_with_two_schemas_leaves_the_dead_letters_of_both(
    kafka: Any, start: StartQueries
) -> None:
    priced = hr.topic("orders", schema="id string not null, price double not null", partitions=1)

    @hr.pipeline(writes=hr.topic("prices", key="id", partitions=1), reads={"rows": priced})
    def prices(rows: DataFrame) -> DataFrame:
        return rows.select("id", "price")

    kafka.produce("orders", [("a", '{"id": "a"}'), ("b", '{"id": "b", "price": 1.5, "amount": "much"}')])
    start(copies, prices, realtime=False)

    assert [record.key for record in kafka.read_count("copies", 1)] == [b"a"]
    assert [record.key for record in kafka.read_count("prices", 1)] == [b"b"]
    assert {letter.key for letter in kafka.read_count("orders.dead-letters", 2)} == {b"a", b"b"}


def test_a_python_function_is_refused_in_real_time_with_the_way_out(start: StartQueries) -> None:
    shout = F.udf(lambda text: text.upper())

    @hr.pipeline(writes=hr.topic("shouts"))
    def shouts(orders: DataFrame) -> DataFrame:
        return orders.select(shout("id").alias("id"))

    with pytest.raises(
        PipelineError, match=r"shouts can't .* it uses a Python function .*without --realtime"
    ):
        start(shouts, realtime=True)


def test_a_join_of_two_streams_is_refused_in_real_time(start: StartQueries) -> None:
    @hr.pipeline(writes=hr.topic("joined"))
    def joined(orders: DataFrame, customers: DataFrame) -> DataFrame:
        return orders.join(customers, "id").select("id")

    with pytest.raises(PipelineError, match="it uses a join of two streams"):
        start(joined, realtime=True)


def test_what_spark_can_not_stream_is_told_in_one_line(start: StartQueries) -> None:
    @hr.pipeline(writes=hr.topic("sorted"))
    def in_order(orders: DataFrame) -> DataFrame:
        return orders.orderBy("id")

    with pytest.raises(
        PipelineError, match=r"in_order can't run: Sorting is not supported on streaming"
    ) as told:
        start(in_order, realtime=False)
    assert "\n" not in str(told.value)


def test_a_misspelt_column_is_told_in_one_line(start: StartQueries) -> None:
    @hr.pipeline(writes=hr.topic("out"))
    def misspelt(orders: DataFrame) -> DataFrame:
        return orders.select("amuont")

    with pytest.raises(PipelineError, match=r"misspelt can't run: .*`amuont` cannot be resolved"):
        start(misspelt, realtime=False)


def test_an_error_in_the_function_is_told_with_its_place(start: StartQueries) -> None:
    @hr.pipeline(writes=hr.topic("out"))
    def misspelt(orders: DataFrame) -> DataFrame:
        return orders.select(orders.amuont)

    with pytest.raises(
        PipelineError, match=r"misspelt failed at .*test_queries\.py:\d+: .*Error: .*`amuont`"
    ) as told:
        start(misspelt, realtime=False)
    assert "\n" not in str(told.value)


@BOTH_MODES
def test_a_row_that_breaks_the_pipeline_is_told_in_one_line(
    kafka: Any, start: StartQueries, *, realtime: bool
) -> None:
    @hr.pipeline(writes=hr.topic("numbers"))
    def numbers(orders: DataFrame) -> DataFrame:
        return orders.select(F.col("id").cast("int").alias("number"))

    kafka.produce("orders", [order("not a number")])

    with pytest.raises(PipelineFailed, match=r"numbers failed: The value 'not a number' .* be cast") as told:
        watch(start(numbers, realtime=realtime))
    assert "\n" not in str(told.value)


def test_a_key_that_is_not_returned_is_refused(start: StartQueries) -> None:
    @hr.pipeline(writes=hr.topic("out", key="customer"))
    def keyless(orders: DataFrame) -> DataFrame:
        return orders.select("id", "amount")

    with pytest.raises(
        PipelineError, match=r"key 'customer', which is none of the columns .* \(id, amount\)"
    ):
        start(keyless, realtime=False)


def test_a_result_that_is_not_made_from_the_topics_is_refused(
    start: StartQueries, spark: SparkSession
) -> None:
    @hr.pipeline(writes=hr.topic("out"))
    def constant(orders: DataFrame) -> DataFrame:
        return spark.range(3)

    with pytest.raises(PipelineError, match="constant returned a DataFrame that is not made from the topics"):
        start(constant, realtime=False)


def test_when_one_query_can_not_start_none_is_left_running(start: StartQueries, spark: SparkSession) -> None:
    @hr.pipeline(writes=hr.topic("out"))
    def broken(orders: DataFrame) -> DataFrame:
        return orders.select("amuont")

    with pytest.raises(PipelineError):
        start(copies, broken, realtime=False)

    assert spark.streams.active == []


@pytest.mark.parametrize("failure_count", [2, 100])
def test_a_query_that_spark_had_no_python_process_for_is_started_again_but_not_for_ever(
    kafka: Any, start: StartQueries, tmp_path: Path, failure_count: int
) -> None:
    failures = tmp_path / "failures"
    failures.mkdir()

    @F.udf("string", useArrow=False)
    def slow(text: str) -> str:
        tried = len(list(failures.iterdir()))
        if tried < failure_count:
            (failures / str(tried)).touch()
            # What Spark says when it has waited for ten seconds.
            raise OSError("Python worker failed to connect back.")
        return text

    @hr.pipeline(writes=hr.topic("copies", key="id", partitions=1))
    def copied(orders: DataFrame) -> DataFrame:
        return orders.select(slow("id").alias("id"))

    def fail() -> None:
        watch(start(copied, realtime=False))

    kafka.produce("orders", [order("a")])
    if failure_count > BEGUN_ANEW_MAX:
        with pytest.raises(PipelineFailed, match="Python worker failed to connect back"):
            fail()
        assert len(list(failures.iterdir())) == BEGUN_ANEW_MAX + 1
    else:
        queries = start(copied, realtime=False)
        assert [record.key for record in kafka.read_count("copies", 1)] == [b"a"]
        resumes = queries.resumes()
        assert [resume.query for resume in resumes] == ["copied"] * failure_count
        assert "slow to start" in resumes[0].reason
        assert queries.resumes() == [], "each is told once"
