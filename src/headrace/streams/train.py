"""`python -m headrace.streams.train BOOTSTRAP DIRECTORY ARCHIVE`: have Java load what pipelines need, and
archive it.

A process of its own, because Java makes the archive when it ends, which takes it some seconds. See
class_archive.py. The broker has to be one that nobody else needs: its topics stay.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from pyspark import SparkContext
from pyspark.sql import DataFrame

from headrace.config import StreamsConfig
from headrace.streams.admin import ensure_topics
from headrace.streams.class_archive import make_options
from headrace.streams.pipeline import pipeline
from headrace.streams.plan import make_plan
from headrace.streams.queries import Queries
from headrace.streams.session import start_session
from headrace.streams.topic import topic

BATCH_S_MAX: Final = 300.0
_SLOTS: Final = 4

orders = topic("orders", schema="id string not null, amount double")


@pipeline(writes=topic("large", key="id"))
def large(orders: DataFrame) -> DataFrame:
    """One of the usual kind."""
    return orders.where("amount > 100")


def main(bootstrap: str, directory: str, archive: str) -> None:
    """Run a batch, and end Java in order."""
    config = StreamsConfig(
        bootstrap=bootstrap,
        data_dir=Path(directory),
        spark_options={"spark.driver.extraJavaOptions": make_options(Path(archive))},
    )
    plan = make_plan([large])
    ensure_topics(config, plan.topics())
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", '{"id": "a", "amount": 101.5}')
    producer.produce("orders", "no order")
    producer.flush()
    session = start_session(config, slots=_SLOTS, work_dir=Path(directory), archived=False)
    queries = Queries(session=session, config=config, realtime=False, until_now=True)
    queries.start(plan)
    queries.await_done(BATCH_S_MAX)
    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way to it
    assert gateway is not None, "there is a session"
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    # As long as it takes; whoever started this process sets the limit.
    sys.exit(gateway.proc.wait())


if __name__ == "__main__":
    main(*sys.argv[1:])
