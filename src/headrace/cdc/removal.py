"""The end of a capture, or a new beginning: what it has made in the database and at the broker goes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.cdc.connection import connect, explained
from headrace.cdc.lock import lock_capture
from headrace.cdc.publisher import Publisher
from headrace.cdc.slots import drop_publication, drop_slot, system_identifier
from headrace.cdc.state import CaptureState, Phase
from headrace.cdc.topic_names import state_topic_of
from headrace.config import CaptureConfig
from headrace.errors import BrokerUnavailable

ANSWER_S_MAX: Final = 30.0
LOCK_S_MAX: Final = 3.0
"""How long the database may take to notice that a process has ended, which a person waits for."""


def begin_anew(config: CaptureConfig) -> None:
    """Have the next start make a new slot and read all tables. What was published stays."""
    with closing(connect(config.dsn)) as control:
        lock_capture(control, config, within_s=LOCK_S_MAX)
        with explained(config.dsn, "looking at the database"):
            system = system_identifier(control)
        with closing(Publisher(config)) as publisher:
            before = publisher.state or CaptureState(slot=config.slot, system=system, phase=Phase.MAKING_SLOT)
            anew = replace(before, slot=config.slot, system=system, phase=Phase.MAKING_SLOT)
            publisher.commit(replace(anew, lsn=0, tables=(), requests=()))


def remove(config: CaptureConfig) -> None:
    """Drop slot and publication, and forget how far the capture was. Topics of tables stay."""
    with closing(connect(config.dsn)) as control:
        lock_capture(control, config, within_s=LOCK_S_MAX)
        with explained(config.dsn, "removing the capture"):
            drop_slot(control, config.slot)
            drop_publication(control, config.publication)
    _delete_topic(config, state_topic_of(config.prefix))


def _delete_topic(config: CaptureConfig, topic: str) -> None:
    admin = AdminClient({**config.client_options, "bootstrap.servers": config.bootstrap, "log_level": 0})
    [deleted] = admin.delete_topics([topic], operation_timeout=ANSWER_S_MAX).values()
    try:
        deleted.result(ANSWER_S_MAX)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise BrokerUnavailable(
                f"topic {topic} could not be deleted at {config.bootstrap}: {error.args[0].str()}"
            ) from error
