"""How pipelines run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from headrace.config.checks import require
from headrace.config.environment import (
    default_bootstrap,
    default_cache_dir,
    default_data_dir,
    default_jars_dir,
)

Guarantee = Literal["exactly-once", "at-least-once", "at-most-once"]
GUARANTEES: Final[tuple[Guarantee, ...]] = ("exactly-once", "at-least-once", "at-most-once")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """How pipelines run."""

    bootstrap: str = field(default_factory=default_bootstrap)
    """The broker, or the Kafka cluster, that pipelines read and write."""
    master: str | None = None
    """Spark's master. None runs Spark in this process with as many task slots as the pipelines need."""
    data_dir: Path = field(default_factory=default_data_dir)
    """Checkpoints are kept below it."""
    cache_dir: Path = field(default_factory=default_cache_dir)
    """Connector jars, and an archive of Spark's classes, are kept below it."""
    jars_dir: Path | None = field(default_factory=default_jars_dir)
    """A directory of connector jars to use instead of downloading them."""
    shuffle_partition_count: int = 2
    """How many partitions keyed state has. Fixed by a pipeline's first checkpoint."""
    realtime_batch_s: int = 300
    """How long a batch of real-time mode lasts: state is checkpointed, and latency dips, once a batch."""
    guarantee: Guarantee | None = None
    """How often a row is written after a crash. None: exactly-once; in real-time mode at-least-once."""
    transaction_s_max: int = 900
    """How long writing a batch may take, exactly-once; a broker allows no more unless it is told to."""
    max_records_per_batch: int = 1_000_000
    """The most that one micro-batch reads of a topic that does not say so itself."""
    client_options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """How to log in to a secured broker, in librdkafka's words, for all Kafka clients of pipelines."""
    spark_options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Further settings of Spark, such as `spark.executor.memory`. What Headrace sets itself is refused."""

    def __post_init__(self) -> None:
        for key in self.spark_options:
            require(
                key.startswith("spark."), f"{key!r} is no setting of Spark: their names begin with `spark.`"
            )
        require(
            self.guarantee is None or self.guarantee in GUARANTEES,
            f"guarantee is {self.guarantee!r}: use one of {', '.join(GUARANTEES)}",
        )
        require(self.transaction_s_max >= 1, "transaction_s_max must be at least 1")
        require(self.max_records_per_batch >= 1, "max_records_per_batch must be at least 1")
        require(bool(self.bootstrap), "bootstrap is empty: name a broker, such as 127.0.0.1:9092")
        require(self.shuffle_partition_count >= 1, "shuffle_partition_count must be at least 1")
        require(self.realtime_batch_s >= 5, "realtime_batch_s must be at least 5, Spark's own minimum")

    def guarantee_of(self, *, realtime: bool) -> Guarantee:
        """What is promised in that mode."""
        require(
            not realtime or self.guarantee in {None, "at-least-once"},
            f"real-time mode can't write {self.guarantee}: run without --realtime, in micro-batches, or with "
            "--guarantee at-least-once",
        )
        return self.guarantee or ("at-least-once" if realtime else "exactly-once")

    @property
    def checkpoints_dir(self) -> Path:
        """One directory per pipeline lies below it."""
        return self.data_dir / "checkpoints"
