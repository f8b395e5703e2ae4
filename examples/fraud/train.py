"""Train the model on the labelled history in the log, in batch, on Spark.

    python examples/fraud/train.py --bootstrap 127.0.0.1:9092

The features are computed by the same function that the stream runs. Cards are split in two by a hash of their
ids: the model learns from four fifths of them, and is judged on the others, of which it has seen nothing. It
is written to `model.json`, which the pipeline reads when it starts, and published to the topic `fraud-model`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
import pipeline
from card_model import FraudModel
from card_rules import FEATURES
from headrace.config import StreamsConfig
from headrace.streams.session import start_session, stop_session

LIMIT: Final = 0.9
PARTITION_COUNT: Final = 4
MODEL_TOPIC: Final = "fraud-model"
ANSWER_S_MAX: Final = 30.0


def read_topic(bootstrap: str, topic: str) -> list[bytes]:
    """All values that the topic has now."""
    settings = {"group.id": "fraud-training", "enable.auto.commit": False, "enable.partition.eof": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    values: list[bytes] = []
    try:
        partitions = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic].partitions
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        left = sum(end - begin for begin, end in (consumer.get_watermark_offsets(each) for each in places))
        consumer.assign(places)
        while left > 0 and (messages := consumer.consume(min(left, 10_000), timeout=ANSWER_S_MAX)):
            left -= len(messages)
            values += [value for message in messages if (value := message.value()) is not None]
    finally:
        consumer.close()
    return values


def labelled(
    session: SparkSession, transactions: Sequence[bytes], profiles: Sequence[bytes], labels: Sequence[bytes]
) -> DataFrame:
    """The features of each transaction, and whether it was fraud."""
    features = pipeline.features_of(
        hr.static(session, pipeline.transactions, transactions),
        hr.static(session, pipeline.profiles, profiles),
    )
    frauds = [(json.loads(label)["tx_id"], 1.0) for label in labels]
    known = session.createDataFrame(frauds, "tx_id string, label double").dropDuplicates(["tx_id"])
    return features.dropDuplicates(["tx_id"]).join(known, "tx_id", "left").fillna(0.0, ["label"])


def train(rows: DataFrame) -> FraudModel:
    """The model that these rows teach, and how good it is on those that were held out."""
    vectors = VectorAssembler(inputCols=list(FEATURES), outputCol="features").transform(rows)
    # Each of the many rounds of training is a job of as many tasks.
    vectors = vectors.coalesce(PARTITION_COUNT).cache()
    is_held_out = F.pmod(F.xxhash64("card_id"), F.lit(5)) == 0
    learnt, held_out = vectors.where(~is_held_out), vectors.where(is_held_out)
    fitted = LogisticRegression(regParam=0.0001, maxIter=200).fit(learnt)
    weights = dict(zip(FEATURES, map(float, fitted.coefficients), strict=True))
    digest = hashlib.sha256(json.dumps([weights, fitted.intercept]).encode()).hexdigest()[:12]
    is_alert = vector_to_array(F.col("probability"))[1] > LIMIT
    precision, recall = quality(fitted.transform(held_out).select("label", is_alert.alias("is_alert")))
    return FraudModel(
        version=digest,
        limit=LIMIT,
        intercept=float(fitted.intercept),
        weights=weights,
        trained_on=learnt.count(),
        precision=round(precision, 4),
        recall=round(recall, 4),
    )


def quality(judged: DataFrame) -> tuple[float, float]:
    """Precision and recall of rows that have a `label` and whether they are an alert, `is_alert`."""
    counts = {
        (row.label == 1.0, row.is_alert): row["count"]
        for row in judged.groupBy(*judged.columns).count().collect()
    }
    hits = counts.get((True, True), 0)
    raised, frauds = hits + counts.get((False, True), 0), hits + counts.get((True, False), 0)
    return hits / raised if raised else 0.0, hits / frauds if frauds else 0.0


def publish(bootstrap: str, model: FraudModel) -> None:
    """Write the model to its topic, of which the last record counts."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if MODEL_TOPIC not in admin.list_topics(timeout=ANSWER_S_MAX).topics:
        compacted = NewTopic(MODEL_TOPIC, num_partitions=1, config={"cleanup.policy": "compact"})
        admin.create_topics([compacted])[MODEL_TOPIC].result()
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(MODEL_TOPIC, model.encode(), "model")
    if producer.flush(ANSWER_S_MAX):
        raise SystemExit(f"error: the broker at {bootstrap} did not take the model")


def main() -> None:
    """Read the log, train, write and publish."""
    parser = argparse.ArgumentParser(description="Train the model of the fraud example.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the broker (%(default)s)")
    default = Path(__file__).with_name("model.json")
    parser.add_argument("--out", type=Path, default=default, help="the file to write (%(default)s)")
    options = parser.parse_args()
    topics = ("transactions", "card-profiles", "fraud-labels")
    values = [read_topic(options.bootstrap, topic) for topic in topics]
    with tempfile.TemporaryDirectory(prefix="headrace-train-") as name:
        session = start_session(StreamsConfig(data_dir=Path(name)), slots=2, work_dir=Path(name))
        try:
            model = train(labelled(session, *values))
        finally:
            stop_session(session)
    options.out.write_text(model.encode())
    publish(options.bootstrap, model)
    print(
        f"model {model.version}: precision {model.precision:.3f}, recall {model.recall:.3f} on held-out cards"
    )


if __name__ == "__main__":
    main()
