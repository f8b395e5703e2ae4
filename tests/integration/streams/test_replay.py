"""The log, replayed: into a new topic, and from the past to live."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import ConfigError, FaultError, InvalidProducerEpoch, PipelineError
from headrace.streams import go_live as go_live_module
from headrace.streams import replay as replay_module
from headrace.streams.admin import Cluster
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.go_live import GoLive
from headrace.streams.pipeline import Pipeline
from headrace.streams.replay import Replay, Replayed
from headrace.streams.replay_note import ReplayNote, read_note, write_note
from headrace.streams.sinks.connection import Connector, ShareWriter
from headrace.streams.sinks.ledger import Batch, Entry, decide
from headrace.streams.spans import OPEN, Bound
from headrace.streams.verify import verify_in

pytestmark = pytest.mark.spark

orders = hr.topic("orders", schema="id string not null, amount double", start="latest", partitions=2)


@hr.pipeline(writes=hr.topic("doubled", key="id", partitions=2))
def doubled(orders: DataFrame) -> DataFrame:
    return orders.select("id", (F.col("amount") * 2).alias("amount"))


def totals_by(function: str) -> Pipeline[Any]:
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("id").agg(F.expr(f"{function}(amount)").alias("total"))

    return hr.pipeline(writes=hr.topic("totals", key="id", partitions=2))(totals)


def order(number: str, amount: float) -> tuple[str, str]:
    return number, json.dumps({"id": number, "amount": amount})


def values(records: Any, column: str) -> list[tuple[str, float]]:
    return sorted((record.key.decode(), json.loads(record.value)[column]) for record in records)


def test_a_part_of_the_log_is_replayed_into_a_new_topic_exactly_once(
    spark: SparkSession, kafka: Any, config: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_module, "PIECE_OFFSETS_MAX", 2)
    kafka.produce("orders", [order(number, 1) for number in "abcdef"] + [("x", "not json")])

    sources = doubled.sources()

    def replay(into: str, begin: Bound = OPEN, finish: Bound = OPEN) -> Replayed:
        made = Replay(pipeline=doubled, sources=sources, into=into, config=config)
        return made.run(spark, made.begin(begin=begin, finish=finish))

    assert replay("all").row_count == 6
    assert values(kafka.read_count("all", 6), "amount") == [(number, 2.0) for number in "abcdef"]

    with pytest.raises(ConfigError, match="the topic all has records already: name a new one"):
        replay("all")
    with pytest.raises(ConfigError, match="itself reads or writes doubled"):
        replay("doubled")

    part = replay("part", begin=Bound(offsets={(None, 0): 1}), finish=Bound(offsets={(None, 0): 3}))
    assert part.offset_count == 2
    assert part.row_count == len(kafka.read_count("part", part.row_count))

    # One that can't be built has begun nothing, and made no topic.
    typo = replace(doubled, function=lambda orders: orders.select("idd"), reads={"orders": orders})
    mistaken = Replay(pipeline=typo, sources=sources, into="again", config=config)
    with pytest.raises(PipelineError, match="can't be computed in batch"):
        mistaken.run(spark, mistaken.begin())
    assert read_note(config, mistaken.query) is None
    assert "again" not in Cluster(config).partition_counts()

    # One that is interrupted before its third part goes on with that one, and one that has written its last
    # part, but not noted that down, does not write it twice.
    def interrupt(step: str) -> None:
        if "part 3" in step:
            raise KeyboardInterrupt

    first = Replay(pipeline=doubled, sources=sources, into="again", config=config, on_step=interrupt)
    with pytest.raises(KeyboardInterrupt):
        first.run(spark, first.begin())
    with pytest.raises(ConfigError, match="was begun with no --from and no --to, and is not finished"):
        first.begin(begin=Bound(moment_ms=0, words="7d"))
    second = Replay(pipeline=doubled, sources=sources, into="again", config=config)
    note = second.begin()
    assert note.pieces_done == 2
    assert second.run(spark, note).row_count == 6
    second.run(spark, replace(note, pieces_done=note.piece_count - 1))
    assert values(kafka.read_count("again", 6), "amount") == [(number, 2.0) for number in "abcdef"]


def test_corrected_results_take_the_place_of_the_old_ones_and_go_on_live(
    spark: SparkSession, kafka: Any, config: StreamsConfig, start: Any, committed: Any
) -> None:
    wrong, right = totals_by("max"), totals_by("sum")
    kafka.produce("orders", [order("a", 1), order("a", 2)])

    # A replay up to the present on a checkpoint that is new, from before the pipeline's own start.
    def go_live(pipeline: Pipeline[Any], *, swap: bool) -> None:
        made = GoLive(pipeline=pipeline, config=config)
        plan = made.plan()
        made.run(spark, plan, made.prepare(plan, swap=swap))

    go_live(wrong, swap=False)
    assert values(kafka.read_count("totals", 1), "total") == [("a", 2.0)]
    with pytest.raises(PipelineError, match="has a checkpoint: add --swap"):
        go_live(wrong, swap=False)
    with pytest.raises(PipelineError, match=r"totals can't go on .* keeps sum\(amount\) in addition"):
        start(right, realtime=False)

    go_live(right, swap=True)
    assert read_note(config, "totals") is None
    assert values(kafka.read_count("totals", 1), "total") == [("a", 3.0)]
    assert len(list((config.data_dir / "replaced").iterdir())) == 1

    # What comes now is added to what was replayed: no gap, and nothing twice.
    kafka.produce("orders", [order("a", 4)])
    queries = start(right, realtime=False)
    assert values(kafka.read_count("totals", 2), "total") == [("a", 3.0), ("a", 7.0)]
    committed("totals")
    queries.stop()
    assert verify_in(spark, right, right.sources(), config).verdict == "equal"


def test_a_swap_that_was_interrupted_goes_on_where_it_stopped(
    spark: SparkSession, kafka: Any, config: StreamsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.produce("orders", [order("a", 1)])
    first = GoLive(pipeline=doubled, config=config)
    first.run(spark, first.plan(), first.prepare(first.plan(), swap=False))
    kafka.read_count("doubled", 1)

    # What can't come to a good end is refused before anything has happened.
    admin = AdminClient({"bootstrap.servers": config.bootstrap, "log_level": "0"})
    new = NewTopic("compacted", 1, config={"cleanup.policy": "compact"})
    admin.create_topics([new])["compacted"].result()
    compacted = GoLive(pipeline=replace(doubled, writes=hr.topic("compacted", key="id")), config=config)
    with pytest.raises(PipelineError, match=r"can't be swapped: its cleanup\.policy is compact"):
        compacted.prepare(compacted.plan(), swap=True)
    for bound in (
        Bound(offsets={(None, 0): 99}),
        Bound(offsets={(None, 7): 0}),
        Bound(offsets={("x", 0): 0}),
    ):
        astray = GoLive(pipeline=doubled, config=config, begin=bound)
        with pytest.raises(ConfigError, match="is none of"):
            astray.prepare(astray.plan(), swap=True)
    typo = replace(doubled, function=lambda orders: orders.select("idd"), reads={"orders": orders})
    mistaken = GoLive(pipeline=typo, config=config)
    with pytest.raises(PipelineError, match="doubled can't run"):
        mistaken.run(spark, mistaken.plan(), mistaken.prepare(mistaken.plan(), swap=True))
    assert read_note(config, "doubled") is None
    assert (checkpoint_path(config, "doubled") / "offsets").exists()

    # A run elsewhere is at work. Once the end of the old results is noted down, it can write no more.
    connector = Connector(
        pipeline="doubled",
        topic="doubled",
        client_options={"bootstrap.servers": config.bootstrap},
        transaction_s_max=60,
    )
    old_run = ShareWriter(connector, 0)
    old_run.begin()
    old_run.send([("doubled", b"z", b"{}", None)])

    # If it can't be shut out, the checkpoint stays where it is, and other code may try.
    swapping = GoLive(pipeline=doubled, config=config)
    plan = swapping.plan()
    with monkeypatch.context() as patched:
        patched.setattr(go_live_module, "shut_out", Mock(side_effect=FaultError("no broker answers")))
        with pytest.raises(FaultError, match="no broker answers"):
            swapping.run(spark, plan, swapping.prepare(plan, swap=True))
    assert read_note(config, "doubled") is None
    assert (checkpoint_path(config, "doubled") / "offsets").exists()

    # Killed before that by other code, and after the old checkpoint was put aside; and called again.
    write_note(config, "doubled", ReplayNote(id="a" * 32, code="another", stage="begun"))
    begun = swapping.make_room(spark, plan, swapping.prepare(plan, swap=True))
    with pytest.raises(InvalidProducerEpoch):
        old_run.commit(Entry(next_batch_id=9, query_id="old", task_count=2, digest="-"))
    old_run.close()
    late_run = ShareWriter(connector, 0)
    old_batch = Batch(pipeline="doubled", query_id="old", batch_id=9, digest="-", is_first=False)
    with pytest.raises(PipelineError, match="another run of pipeline doubled"):
        decide(late_run.entry(), old_batch, 2)
    late_run.close()
    assert not (checkpoint_path(config, "doubled") / "offsets").exists()
    assert swapping.prepare(plan, swap=True) == begun
    swapping.run(spark, plan, begun)
    assert values(kafka.read_count("doubled", 1), "amount") == [("a", 2.0)]
