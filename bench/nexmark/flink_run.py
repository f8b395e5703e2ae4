"""Run a query of Nexmark by Flink SQL, to the end of its topics, with an interpreter that has apache-flink.

    VENV/bin/python bench/nexmark/flink_run.py BOOTSTRAP JAR QUERY SOURCE-PREFIX:TARGET ...

For each pair it prints the seconds from submitting the job to its end; the first is there to warm up. Flink
runs in this process, with two tasks side by side, mini-batches as in Flink's own Nexmark, and no checkpoints:
at least once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

# No Python runs in these jobs, so that nothing has to be started for it.
os.environ.setdefault("_python_worker_execution_mode", "process")

# Not a package that this repository is checked with: it lives in an environment of its own.
from pyflink.table import (  # type: ignore[import-not-found,unused-ignore]
    EnvironmentSettings,
    TableEnvironment,
)

from flink_queries import QUERIES, SOURCES, FlinkQuery

SETTINGS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}
FORMAT = "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"
UPSERT_FORMAT = (
    "'key.format' = 'json', 'key.json.timestamp-format.standard' = 'ISO-8601', "
    "'value.format' = 'json', 'value.json.timestamp-format.standard' = 'ISO-8601'"
)


def main() -> None:
    """Run what is asked for."""
    bootstrap, jar, name, *pairs = sys.argv[1:]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in {**SETTINGS, "pipeline.jars": Path(jar).as_uri()}.items():
        tables.get_config().set(key, value)
    for number, pair in enumerate(pairs):
        prefix, _, target = pair.partition(":")
        print(run(tables, QUERIES[name], bootstrap, prefix, (f"sink_{number}", target)), flush=True)


def run(
    tables: TableEnvironment, query: FlinkQuery, bootstrap: str, prefix: str, target: tuple[str, str]
) -> float:
    """How many seconds the query took."""
    for name, columns in SOURCES.items():
        topic = prefix + ("bids" if name == "logged_bids" else name)
        tables.execute_sql(f"DROP TABLE IF EXISTS {name}")
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}', "
            f"'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = 'flink', "
            "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', "
            f"{FORMAT})"
        )
    tables.execute_sql("DROP TABLE IF EXISTS side_input")
    tables.execute_sql(
        "CREATE TABLE side_input (key BIGINT) WITH ('connector' = 'datagen', 'fields.key.kind' = 'sequence', "
        "'fields.key.start' = '0', 'fields.key.end' = '9999', 'rows-per-second' = '1000000')"
    )
    sink, place = target
    tables.execute_sql(sink_table(query, sink, place, bootstrap))
    begin_s = time.perf_counter()
    tables.execute_sql(f"INSERT INTO {sink} {query.select}").wait()
    return time.perf_counter() - begin_s


def sink_table(query: FlinkQuery, sink: str, place: str, bootstrap: str) -> str:
    """The statement that makes the table that is written."""
    to_topic = f"'topic' = '{place}', 'properties.bootstrap.servers' = '{bootstrap}'"
    if query.partitioned_by is not None:
        options = f"'connector' = 'filesystem', 'path' = '{place}', {FORMAT}"
        return (
            f"CREATE TABLE {sink} ({query.columns}) PARTITIONED BY ({query.partitioned_by}) WITH ({options})"
        )
    if query.key is None:
        return f"CREATE TABLE {sink} ({query.columns}) WITH ('connector' = 'kafka', {to_topic}, {FORMAT})"
    return (
        f"CREATE TABLE {sink} ({query.columns}, PRIMARY KEY ({query.key}) NOT ENFORCED) "
        f"WITH ('connector' = 'upsert-kafka', {to_topic}, {UPSERT_FORMAT})"
    )


if __name__ == "__main__":
    main()
