"""The topics of a capture: made before the first record is sent to them.

A broker deletes what is on a topic after a week, unless it was told otherwise, and then no store can be built
anew from it. So the topics of a capture are made with a retention of their own:

| topics | keep |
|---|---|
| of tables | all events, those of a time, or the last version of each row |
| transactions, schema changes, messages | the same; beside compacted topics of tables, what the broker says |
| heartbeats, and events of an outbox | what the broker says |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cdc.outbox import OUTBOX_TOPICS
from headrace.cdc.topic_names import heartbeat_topic_of, state_topic_of

if TYPE_CHECKING:
    from headrace.config import CaptureConfig

_STATE_SETTINGS: Final = {
    "cleanup.policy": "compact",
    # Of each key only the last record matters, so the file need not grow before it is cleaned.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3600000",
}


class Topics:
    """Knows which topics are there, and makes the others. Belongs to one thread."""

    def __init__(self, config: CaptureConfig, answer_s_max: float) -> None:
        self.state_topic = state_topic_of(config.prefix)
        self._config = config
        self._answer_s_max = answer_s_max
        self._admin = AdminClient(
            {**config.client_options, "bootstrap.servers": config.bootstrap, "log_level": 0}
        )
        self._known = set(self._admin.list_topics(timeout=answer_s_max).topics)

    def is_known(self, topic: str) -> bool:
        """Whether the topic is there."""
        return topic in self._known

    def ensure_state_topic(self) -> None:
        """Have the topic that says how far the capture is."""
        if self.state_topic not in self._known:
            self._make(NewTopic(self.state_topic, 1, config=_STATE_SETTINGS))

    def ensure(self, topic: str) -> None:
        """Have a topic of events."""
        # A transaction's order is told by its own topic, so that one has a single partition.
        count = 1 if topic.endswith((".transaction", ".schema-changes")) else self._config.partition_count
        self._make(NewTopic(topic, count, config=kept(topic, self._config)))

    def _make(self, topic: NewTopic) -> None:
        [made] = self._admin.create_topics([topic], operation_timeout=self._answer_s_max).values()
        try:
            made.result(self._answer_s_max)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        self._known.add(topic.topic)


def kept(topic: str, config: CaptureConfig) -> dict[str, str]:
    """The settings of a new topic of events."""
    return {**_retention(topic, config), **config.topic_settings}


def _retention(topic: str, config: CaptureConfig) -> dict[str, str]:
    own, _, name = topic.partition(f"{config.prefix}.")
    # An outbox has topics outside of the prefix, unless that is `outbox`: there nothing must be compacted.
    if own or topic == heartbeat_topic_of(config.prefix) or topic.startswith(OUTBOX_TOPICS):
        return {}
    if config.keeps_last_only:
        is_of_table = "." in name
        return {"cleanup.policy": "compact"} if is_of_table else {}
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(config.retention_ms),
        "retention.bytes": "-1",
    }
