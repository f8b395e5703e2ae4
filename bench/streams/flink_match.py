"""Look for a pattern of card transactions by Flink SQL's MATCH_RECOGNIZE, to the end of a topic.

    VENV/bin/python bench/streams/flink_match.py BOOTSTRAP JAR PATTERN SOURCE:TARGET ...

VENV has apache-flink. For each pair it prints the seconds from submitting the job to its end; the first is
there to warm up. Flink runs in this process, with two tasks side by side and no checkpoints: at least once.
PATTERN is `strict` or `relative`: the last of the match is large, or also large beside the others.
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

LARGE = {
    "strict": "big.cents > 60000",
    "relative": "big.cents > 60000 AND big.cents > 100 * AVG(CAST(probe.cents AS DOUBLE))",
}
SEARCH = """
INSERT INTO {sink}
SELECT tx_1, tx_2, tx_3, tx_4 FROM {source} MATCH_RECOGNIZE (
  PARTITION BY card ORDER BY happened
  MEASURES
    FIRST(probe.tx, 0) AS tx_1, FIRST(probe.tx, 1) AS tx_2, FIRST(probe.tx, 2) AS tx_3, big.tx AS tx_4
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (probe{{3}} big) WITHIN INTERVAL '5:00.001' MINUTE TO SECOND
  DEFINE probe AS probe.cents < 5000, big AS {large}
)
"""


def main() -> None:
    """Run what is asked for."""
    bootstrap, jar, pattern, *pairs = sys.argv[1:]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {"parallelism.default": "2", "pipeline.jars": Path(jar).as_uri()}
    for key, value in settings.items():
        tables.get_config().set(key, value)
    for number, pair in enumerate(pairs):
        source, _, target = pair.partition(":")
        print(run(tables, pattern, bootstrap, (f"source_{number}", source), (f"sink_{number}", target)))
        sys.stdout.flush()


def run(
    tables: TableEnvironment, pattern: str, bootstrap: str, source: tuple[str, str], sink: tuple[str, str]
) -> float:
    """How many seconds the search took. Source and sink are a table's name and its topic."""
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{bootstrap}', 'format' = 'json'"
    tables.execute_sql(
        f"CREATE TABLE {source[0]} (tx BIGINT, card STRING, cents BIGINT, at_ms BIGINT, "
        "happened AS TO_TIMESTAMP_LTZ(at_ms, 3), WATERMARK FOR happened AS happened - INTERVAL '2' MINUTE) "
        f"WITH ({kafka}, 'topic' = '{source[1]}', 'properties.group.id' = 'flink', "
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')"
    )
    tables.execute_sql(
        f"CREATE TABLE {sink[0]} (tx_1 BIGINT, tx_2 BIGINT, tx_3 BIGINT, tx_4 BIGINT) "
        f"WITH ({kafka}, 'topic' = '{sink[1]}')"
    )
    begin_s = time.perf_counter()
    tables.execute_sql(SEARCH.format(source=source[0], sink=sink[0], large=LARGE[pattern])).wait()
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
