"""What a real OpenSearch does under faults, and what becomes of the rows then."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError, PipelineFailed, PipelineReplaced, StoreUnavailable
from headrace.search import open_index
from headrace.search.fields import Column, Columns
from headrace.search.server import Server, connected
from headrace.streams.sinks.context import BatchWriter
from headrace.streams.sinks.ledger import NO_DIGEST, Entry
from headrace.streams.sinks.opensearch import place
from headrace.streams.sinks.opensearch.bulk import Action
from headrace.streams.sinks.opensearch.ledger import Kept, ServedLedger
from headrace.streams.sinks.opensearch.read import pages
from headrace.streams.sinks.opensearch.task import BulkTask, Sender
from headrace.streams.sinks.refused import Refusals, refused_files
from headrace.streams.sinks.run_ledger import Ledger

pytestmark = pytest.mark.java

MakeWriter = Callable[..., BatchWriter]
BODY_BYTES_MAX = 2**20
COLUMNS = Columns(
    key=("k",),
    columns=(
        Column(name="k", type="string", kind="whole"),
        Column(name="v", type="bigint", kind="integer"),
        Column(name="text", type="string", kind="words"),
        Column(name="more", type="map<string,string>", kind="json"),
    ),
)


def row(key: str, **values: Any) -> Action:
    return Action(id=json.dumps([key]), row=json.dumps({"k": key, **values}))


def deletion(key: str) -> Action:
    return Action(id=json.dumps([key]), row=None)


@pytest.fixture
def server(on_server: Any) -> Iterator[Server]:
    """A connection."""
    with connected(on_server.address) as found:
        yield found


def ledger_says(server: Server, index: str, *, run: int, batch_id: int) -> None:
    """That this batch of this run is to be written."""
    ledger = ServedLedger(pipeline="orders", index=index)
    ledger.make(server)
    entry = Entry(next_batch_id=batch_id, query_id="query-1", task_count=1, digest=NO_DIGEST)
    kept = Kept(ledger=Ledger(run=run, entry=entry), generation="", uuid="", writer="test")
    assert ledger.write(server, kept, ledger.read(server))


@pytest.fixture
def sender(on_server: Any, server: Server, tmp_path: Path) -> Sender:
    """What writes rows of the third batch of the second run, to an index that is there."""
    generation = place.ensure(server, on_server.name, COLUMNS)
    ledger_says(server, on_server.name, run=2, batch_id=3)
    task = BulkTask(
        url=on_server.address,
        ledger=ServedLedger(pipeline="orders", index=on_server.name),
        generation=generation.name,
        run=2,
        batch_id=3,
        key=("k",),
        columns=("k", "_row"),
        refused=None,
    )
    refusals = Refusals(files=refused_files(tmp_path), batch_id=3, part="0")
    return Sender(server=server, task=task, refusals=refusals, try_s_max=0.5)


def of(sender: Sender, *, run: int = 2, batch_id: int) -> Sender:
    """What writes another batch, which is to be written as far as the ledger says."""
    ledger_says(sender.server, sender.task.ledger.index, run=run, batch_id=batch_id)
    return replace(sender, task=replace(sender.task, run=run, batch_id=batch_id))


def values(on_server: Any) -> dict[str, Any]:
    on_server.settle()
    with open_index(on_server.address, on_server.name) as index:
        return {hit.row["k"]: hit.row.get("v") for hit in index.search("*", limit=10_000)}


def refused(sender: Sender, tmp_path: Path) -> dict[str, str]:
    sender.refusals.flush()
    files = refused_files(tmp_path)
    assert files is not None
    rows = [found for part in files.parts(3) for found in pq.read_table(part).to_pylist()]
    return {json.loads(found["key"])[0]: found["cause"] for found in rows}


def test_what_comes_late_is_refused_by_its_version_also_what_was_deleted(
    on_server: Any, sender: Sender
) -> None:
    assert not sender.send([row("a", v=1), deletion("b"), row("c", v=1), deletion("never there")])
    late = [row(key, v=9) for key in ("a", "b", "c", "never there")] + [deletion("a")]
    assert of(sender, batch_id=2).send(late), "the server has newer ones"
    assert of(sender, run=1, batch_id=9).send(late)
    assert values(on_server) == {"a": 1, "c": 1}
    again = of(sender, batch_id=3)
    assert not again.send([row("a", v=1), deletion("b")]), "the same version is no newer one"


def test_a_task_that_comes_late_writes_nothing_when_the_server_has_forgotten_what_was_deleted(
    on_server: Any, sender: Sender
) -> None:
    sender.send([row("a", v=1), row("b", v=1)])
    of(sender, batch_id=4).send([deletion("a")])
    on_server.ask("POST", f"/{on_server.name}/_flush?force=true")
    on_server.server.kill()
    on_server.server.start()
    with pytest.raises(PipelineFailed, match="comes late: batch 3 is written"):
        sender.send([row("a", v=1)])
    ledger_says(sender.server, on_server.name, run=3, batch_id=3)
    with pytest.raises(PipelineReplaced):
        sender.send([row("a", v=1)])
    assert values(on_server) == {"b": 1}


def test_what_the_server_can_not_take_is_put_aside_and_the_rest_is_written(
    on_server: Any, sender: Sender, tmp_path: Path
) -> None:
    long = "x" * 40_000
    rows = [row("a", v=1), row("word", text=long), row("path", more={"x": long}), row("type", v={"x": 1})]
    sender.send([*rows, row("b", v=2)])
    assert values(on_server) == {"a": 1, "word": None, "b": 2}
    causes = refused(sender, tmp_path)
    assert set(causes) == {"path", "type"}
    assert "immense term" in causes["path"]
    assert "failed to parse field [v] of type [long]" in causes["type"]


def test_requests_that_are_too_large_are_cut_and_a_row_that_is_too_large_is_put_aside(
    on_server: Any, sender: Sender, tmp_path: Path
) -> None:
    third = "x " * (BODY_BYTES_MAX // 6)
    rows = [row(str(number), v=number, text=third) for number in range(7)]
    sender.send([*rows, row("large", text="x " * BODY_BYTES_MAX)])
    assert values(on_server) == {str(number): number for number in range(7)}
    causes = refused(sender, tmp_path)
    assert set(causes) == {"large"}
    assert "larger than the server takes" in causes["large"]


def test_a_server_that_has_too_much_to_do_is_asked_again_until_all_is_written(
    on_server: Any, sender: Sender
) -> None:
    patient, numbers = replace(sender, try_s_max=240.0), count()

    def rejected_count() -> int:
        (node,) = on_server.ask("GET", "/_nodes/stats/thread_pool")["nodes"].values()
        return int(node["thread_pool"]["write"]["rejected"])

    def send(actions: list[Action]) -> bool:
        with connected(on_server.address) as server:
            return replace(patient, server=server).send(actions)

    before = rejected_count()
    with ThreadPoolExecutor(16) as threads:
        while rejected_count() == before:
            shares = [[next(numbers) for _ in range(50)] for _ in range(16)]
            assert not any(threads.map(send, [[row(str(n), v=n) for n in share] for share in shares]))
    on_server.settle()
    assert on_server.ask("GET", f"/{on_server.name}/_count")["count"] == next(numbers)


@pytest.mark.parametrize("how", ["closed", "write", "read_only_allow_delete"])
def test_rows_for_an_index_that_is_closed_or_blocked_are_not_refused_but_written_later(
    on_server: Any, sender: Sender, how: str, tmp_path: Path
) -> None:
    settings = f"/{on_server.name}/_settings"
    if how == "closed":
        on_server.ask("POST", f"/{on_server.name}/_close")
    else:
        on_server.ask("PUT", settings, {f"index.blocks.{how}": True})
    with pytest.raises(StoreUnavailable, match=r"has not taken 1 rows .*(closed|blocked by)"):
        sender.send([row("a", v=1)])
    if how == "closed":
        with (
            open_index(on_server.address, on_server.name) as index,
            pytest.raises(StoreUnavailable, match=r"not possible .* for now: 400 closed"),
        ):
            index.search("x")
        on_server.ask("POST", f"/{on_server.name}/_open?wait_for_active_shards=1")
    else:
        on_server.ask("PUT", settings, {f"index.blocks.{how}": None})
    patient = replace(sender, try_s_max=240.0)
    assert not patient.send([row("a", v=1)])
    assert values(on_server) == {"a": 1}
    assert refused(sender, tmp_path) == {}


def test_a_server_that_lets_no_index_be_made_has_not_refused_the_login(
    on_server: Any, server: Server
) -> None:
    def block(*, is_on: bool | None) -> None:
        on_server.ask("PUT", "/_cluster/settings", {"transient": {"cluster.blocks.create_index": is_on}})

    block(is_on=True)
    try:
        with pytest.raises(StoreUnavailable, match=r"making the index .* now: 403 .*create-index blocked"):
            place.ensure(server, on_server.name, COLUMNS)
    finally:
        block(is_on=None)
    assert place.ensure(server, on_server.name, COLUMNS).columns == COLUMNS


def test_rows_go_to_the_generation_alone_whoever_else_has_been_given_its_alias(
    on_server: Any, sender: Sender
) -> None:
    other = f"{on_server.name}-other"
    on_server.ask("PUT", f"/{other}")
    alias = {"index": other, "alias": f"{sender.task.generation}-rows"}
    on_server.ask("POST", "/_aliases", {"actions": [{"add": alias}]})
    sender.send([row("a", v=1)])
    assert values(on_server) == {"a": 1}


def test_large_rows_are_read_in_small_pages_and_who_reads_no_further_leaves_nothing_behind(
    on_server: Any, sender: Sender
) -> None:
    # What can't be packed: a page is measured by what the server has on disk.
    large = [row(str(number), text=secrets.token_hex(200_000)) for number in range(50)]
    for action in large:
        sender.send([action])
    found = list(pages(sender.server, on_server.name))
    assert len(found) > 1
    assert max(map(len, found)) < 50
    texts = {json.loads(text)["k"]: text for page in found for text in page}
    assert texts == {json.loads(action.row or "")["k"]: action.row for action in large}
    reading = pages(sender.server, on_server.name, rows_max=1)
    next(reading)
    reading.close()
    (node,) = on_server.ask("GET", "/_nodes/stats/indices/search")["nodes"].values()
    assert node["indices"]["search"]["scroll_current"] == 0


def numbered(spark: SparkSession, rows: range) -> DataFrame:
    return spark.range(rows.start, rows.stop).select(
        F.concat(F.lit("k"), F.col("id")).alias("k"), F.col("id").alias("v")
    )


@pytest.mark.spark
def test_a_batch_outlasts_a_server_that_is_killed_and_comes_back(
    spark: SparkSession, on_server: Any, writer: MakeWriter
) -> None:
    table = hr.search_index(on_server.address, on_server.name, key="k", writers=2)
    orders = writer(table)
    orders.write(numbered(spark, range(100)), 0)
    on_server.server.kill()
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(orders.write, numbered(spark, range(100, 3000)), 1)
        on_server.server.start()
        assert writing.result() == 2900
    assert values(on_server) == {f"k{number}": number for number in range(3000)}
    assert writer(table).write(numbered(spark, range(5)), 1) == 0


@pytest.mark.spark
def test_an_index_into_which_a_backup_was_restored_is_noticed(
    spark: SparkSession, on_server: Any, writer: MakeWriter
) -> None:
    table = hr.search_index(on_server.address, on_server.name, key="k", writers=2)
    orders = writer(table)
    orders.write(numbered(spark, range(3)), 0)
    generation = f"{on_server.name}-g000001"
    on_server.ask("PUT", "/_snapshot/kept", {"type": "fs", "settings": {"location": "kept"}})
    only = {"indices": generation, "include_global_state": False}
    on_server.ask("PUT", f"/_snapshot/kept/{generation}?wait_for_completion=true", only)
    orders.write(numbered(spark, range(3, 6)), 1)
    on_server.ask("POST", f"/{generation}/_close")
    restored = f"/_snapshot/kept/{generation}/_restore?wait_for_completion=true"
    on_server.ask("POST", restored, {**only, "include_aliases": False})
    with pytest.raises(PipelineError, match="is another than the one that was written"):
        writer(table).write(numbered(spark, range(6, 9)), 2)
