"""The topics of a capture: made before the first record is sent to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cdc.topic_names import state_topic_of

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
        self._make(NewTopic(topic, count, config=dict(self._config.topic_settings)))

    def _make(self, topic: NewTopic) -> None:
        [made] = self._admin.create_topics([topic], operation_timeout=self._answer_s_max).values()
        try:
            made.result(self._answer_s_max)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        self._known.add(topic.topic)
