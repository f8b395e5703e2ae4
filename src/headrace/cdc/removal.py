"""The end of a capture, or a new beginning: what it has made in the database and at the broker goes.

What it has made is what its state says; a slot or a publication that it has not made is left, and named. The
broker is asked first, so that nothing is gone where it does not answer, and the state is forgotten last, so
that an end that was interrupted can be had again.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.cdc.connection import Connection, connect, explained
from headrace.cdc.lock import lock_capture
from headrace.cdc.publisher import Publisher
from headrace.cdc.slot import check_whose, not_made_by
from headrace.cdc.slots import drop_publication, drop_slot, has_publication, read_slot, system_identifier
from headrace.cdc.state import CaptureState, Phase
from headrace.cdc.topic_names import state_topic_of
from headrace.config import CaptureConfig
from headrace.errors import BrokerUnavailable

QUOTE: Final = "'"
NAME_QUOTE: Final = '"'
ANSWER_S_MAX: Final = 30.0
LOCK_S_MAX: Final = 3.0
"""How long the database may take to notice that a process has ended, which a person waits for."""


def begin_anew(config: CaptureConfig) -> None:
    """Have the next start make a new slot and read all tables. What was published stays."""
    with closing(connect(config.dsn)) as control:
        lock_capture(control, config, within_s=LOCK_S_MAX)
        with explained(config.dsn, "looking at the database"):
            system, found = system_identifier(control), read_slot(control, config.slot)
        with closing(Publisher(config, accepts_any_state=True)) as publisher:
            if found is not None:
                check_whose(config.name, found)
                if not publisher.has_unreadable_state and not _owns_slot(publisher.state, config, system):
                    raise not_made_by(config.name, config.slot)
            before = publisher.state or CaptureState(slot=config.slot, system=system, phase=Phase.MAKING_SLOT)
            anew = replace(before, slot=config.slot, system=system, phase=Phase.MAKING_SLOT)
            publisher.commit(replace(anew, lsn=0, tables=(), requests=()))


def remove(config: CaptureConfig) -> list[str]:
    """Drop slot and publication, and forget how far the capture was. Topics of tables stay.

    Returns what is there by the capture's names, and was left because the capture has not made it.
    """
    with closing(connect(config.dsn)) as control:
        lock_capture(control, config, within_s=LOCK_S_MAX)
        with closing(Publisher(config, answer_s_max=ANSWER_S_MAX, accepts_any_state=True)) as publisher:
            with explained(config.dsn, "removing the capture"):
                left = _drop_own(control, config, publisher.state)
            publisher.forget()
    if not publisher.other_names:
        _delete_topic(config, state_topic_of(config.prefix))
    return left


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What a capture may have left in a database that was not asked, and what removes it there."""

    slot: str
    publication: str | None
    """None where the capture has not made it."""

    @property
    def names(self) -> list[str]:
        """What it is."""
        named = [f"the replication slot {self.slot}"]
        return named if self.publication is None else [*named, f"the publication {self.publication}"]

    @property
    def statements(self) -> list[str]:
        """SQL, to be run in the database that was captured."""
        slot = (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "  # noqa: S608 - told, not run
            f"WHERE slot_name = {_quoted(self.slot, QUOTE)};"
        )
        if self.publication is None:
            return [slot]
        return [slot, f"DROP PUBLICATION IF EXISTS {_quoted(self.publication, NAME_QUOTE)};"]


def forget_database(config: CaptureConfig) -> LeftBehind:
    """Forget how far a capture was, and leave its database alone, which is gone. Topics of tables stay.

    Where the database lives on, the lock that is in it is not taken: a process that runs is fenced by the
    broker, and ends.
    """
    with closing(Publisher(config, answer_s_max=ANSWER_S_MAX, accepts_any_state=True)) as publisher:
        state = publisher.state
        publisher.forget()
    if not publisher.other_names:
        _delete_topic(config, state_topic_of(config.prefix))
    is_own = state is None or state.owns_publication
    return LeftBehind(slot=config.slot, publication=config.publication if is_own else None)


def _quoted(text: str, quote: str) -> str:
    return f"{quote}{text.replace(quote, 2 * quote)}{quote}"


def _drop_own(control: Connection, config: CaptureConfig, state: CaptureState | None) -> list[str]:
    system = system_identifier(control)
    if _owns_slot(state, config, system):
        drop_slot(control, config.slot)
    if state is not None and state.system == system and state.owns_publication:
        drop_publication(control, config.publication)
    left = []
    if read_slot(control, config.slot) is not None:
        left.append(f"the replication slot {config.slot}")
    if has_publication(control, config.publication):
        left.append(f"the publication {config.publication}")
    return left


def _owns_slot(state: CaptureState | None, config: CaptureConfig, system: str) -> bool:
    """Whether the state says that the slot was made by the capture, and not dropped by it since."""
    return (
        state is not None
        and (state.slot, state.system) == (config.slot, system)
        and state.phase is not Phase.DONE
    )


def delete_topics(config: CaptureConfig) -> None:
    """Delete all topics of a capture, those of its tables too: for one whose events nobody needs."""
    admin = AdminClient({**config.client_options, "bootstrap.servers": config.bootstrap, "log_level": 0})
    try:
        topics = list(admin.list_topics(timeout=ANSWER_S_MAX).topics)
    except KafkaException as error:
        raise BrokerUnavailable(
            f"the topics {config.prefix}.* could not be deleted at {config.bootstrap}: "
            f"{error.args[0].str()}. Delete them when it answers"
        ) from error
    for topic in topics:
        if topic.startswith(f"{config.prefix}."):
            _delete_topic(config, topic)


def _delete_topic(config: CaptureConfig, topic: str) -> None:
    admin = AdminClient({**config.client_options, "bootstrap.servers": config.bootstrap, "log_level": 0})
    [deleted] = admin.delete_topics([topic], operation_timeout=ANSWER_S_MAX).values()
    try:
        deleted.result(ANSWER_S_MAX)
    except TimeoutError as error:
        raise BrokerUnavailable(
            f"topic {topic} could not be deleted: {config.bootstrap} has not answered within "
            f"{ANSWER_S_MAX:.0f} s. Try again"
        ) from error
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise BrokerUnavailable(
                f"topic {topic} could not be deleted at {config.bootstrap}: {error.args[0].str()}"
            ) from error
