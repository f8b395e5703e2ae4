"""How Spark is told to read topics."""

from __future__ import annotations

from typing import Any

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.streams.source import Reader, read_records_stream

TOPIC = hr.topic("orders", schema="id bigint")


class Told:
    """Stands for a session, and for its reader: notes the options."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    @property
    def readStream(self) -> Told:  # noqa: N802 - as Spark has it
        return self

    def format(self, _name: str) -> Told:
        return self

    def options(self, **options: Any) -> Told:
        self.said |= options
        return self

    def option(self, name: str, value: Any) -> Told:
        self.said[name] = value
        return self

    def load(self) -> dict[str, Any]:
        return self.said


def options_of(*, realtime: bool = False, patience_ms: int = 0, **client_options: str) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in client_options.items()}
    config = StreamsConfig(client_options=named)
    reader = Reader(name="copy", config=config, realtime=realtime, patience_ms=patience_ms)
    session: Any = Told()
    told: Any = read_records_stream(session, TOPIC, reader)
    return dict(told)


def test_a_batch_does_not_wait_at_the_end_of_a_partition_for_what_comes_after_it() -> None:
    told = options_of()
    assert int(told["kafka.fetch.max.wait.ms"]) <= 10
    assert int(told["kafka.max.poll.records"]) > 500
    assert options_of(patience_ms=500) == told
    behind_leader = options_of(client_rack="a")
    assert int(behind_leader["kafka.fetch.max.wait.ms"]) > int(told["kafka.fetch.max.wait.ms"])


def test_what_runs_without_batches_waits_for_records_as_long_as_the_client_does_by_itself() -> None:
    assert "kafka.fetch.max.wait.ms" not in options_of(realtime=True)


def test_what_can_wait_is_read_many_records_at_a_time() -> None:
    told = options_of(realtime=True, patience_ms=700)
    assert told["kafka.fetch.max.wait.ms"] == "700"
    assert int(told["kafka.fetch.min.bytes"]) >= 10_000


def test_a_users_own_setting_counts() -> None:
    assert options_of(fetch_max_wait_ms="70")["kafka.fetch.max.wait.ms"] == "70"
