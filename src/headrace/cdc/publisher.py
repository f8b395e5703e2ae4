"""Publishes events and the position behind them in one Kafka transaction: all of it counts, or nothing does.

    fence all earlier publishers of the name → read the last committed state
    begin → send events of whole source transactions → send the state → commit → confirm to the database

A crash before the commit leaves nothing that a committed reader sees, and the next start goes on from the
state before; one after it finds the new state. What the database then sends again lies before the position
and is passed over. So nothing is missing and nothing is there twice, wherever a kill strikes.

Whoever starts a publisher fences the one before, whose transaction is aborted and who can't write any more.
One thread owns a publisher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.cdc.last_state import find_last_state
from headrace.cdc.record import Record
from headrace.cdc.state import CaptureState, from_json, to_json
from headrace.cdc.topics import Topics
from headrace.config import MIB
from headrace.errors import BrokerUnavailable, CaptureFailed, CaptureReplaced, ConfigError, HeadraceError
from headrace.failpoints import hit

if TYPE_CHECKING:
    from headrace.config import CaptureConfig

ANSWER_S_MAX: Final = 60.0
"""How long the coordinator of a transaction may take; a broker may be restarting."""
COMMIT_STEP_S: Final = 1.0
ABORT_S_MAX: Final = 5.0
REQUEST_BYTES_MAX: Final = 17 * MIB
"""The largest request that is sent: a record of 16 MiB, the most that a broker takes, and its headers."""
BUFFER_BYTES: Final = 2 * REQUEST_BYTES_MAX
"""How much waits to be sent, at most: a transaction of any size is published in bounded memory."""
_BUFFER_MESSAGES_MAX: Final = 100_000
_BUFFER_FULL_S: Final = 0.1
_GATHER_MS: Final = 20
_REGISTERED_S: Final = 0.001
"""So long after the first record, the client tells the broker which partitions a transaction has, and sends
no record before. Asked for a commit meanwhile, it lets a whole millisecond pass from then on: to ask later is
to be done sooner."""
_FENCED: Final = {
    KafkaError._FENCED,  # noqa: SLF001 - that is how the library names its local errors
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_UNREACHABLE: Final = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - that is how the library names its local errors
    KafkaError._TRANSPORT,  # noqa: SLF001 - likewise
    KafkaError._TIMED_OUT,  # noqa: SLF001 - likewise
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - likewise
    # What is said of a transaction that has failed before; the next one may not.
    KafkaError._STATE,  # noqa: SLF001 - likewise
}
_REFUSED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic, or leave large columns out",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the topic, or leave large columns out",
    KafkaError.INVALID_RECORD: (
        "a compacted topic takes no record without a key, as of a TRUNCATE or of a table without a primary "
        "key: have the topic keep what it holds (cleanup.policy=delete, retention.ms=-1), and start again"
    ),
    KafkaError.TOPIC_EXCEPTION: "choose another --prefix, or leave the table out",
    KafkaError.POLICY_VIOLATION: "ask whoever runs the broker",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "have the user write to the capture's topics",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "have the user write with transactional ids headrace.*",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "have the user write idempotently to the cluster",
}
"""What a broker refuses the next time, too, although it says so by way of a transaction to abort; and what to
do."""


class Publisher:
    """The one writer of a capture's topics."""

    def __init__(
        self,
        config: CaptureConfig,
        *,
        answer_s_max: float = ANSWER_S_MAX,
        is_ending: Callable[[], bool] = lambda: False,
        accepts_any_state: bool = False,
    ) -> None:
        """Fence all earlier publishers of the same name. Who is ending waits for no broker any more.

        Whoever begins anew or ends a capture accepts any state: one that can't be read counts as none.
        """
        self._is_ending = is_ending
        self._config = config
        self._answer_s_max = answer_s_max
        self._key = config.name.encode()
        self._is_open = False
        self._begun_s = 0.0
        self._sent_count = 0
        self.has_unreadable_state = False
        """Whether there is a state that is none, which was accepted."""
        with self._told():
            self._topics = Topics(config, answer_s_max)
            self._topics.ensure_state_topic()
            self._producer = Producer(
                {
                    # A client that forgets its brokers when none answers goes on to ask the forgotten one.
                    "metadata.recovery.strategy": "none",
                    **self._clients,
                    # As Java's clients do it, and with them Debezium: a key stays in its partition.
                    "partitioner": "murmur2_random",
                    "enable.idempotence": True,
                    "message.max.bytes": REQUEST_BYTES_MAX,
                    "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
                    "queue.buffering.max.messages": _BUFFER_MESSAGES_MAX,
                    # Nobody sees a record before the commit, which waits for none to gather.
                    "linger.ms": _GATHER_MS,
                    "transactional.id": f"headrace.capture.{config.name}",
                    "transaction.timeout.ms": config.transaction_s_max * 1000,
                }
            )
            self._producer.init_transactions(answer_s_max)
            self._state, self._other_names = self._last_state(accepts_any=accepts_any_state)

    @property
    def state(self) -> CaptureState | None:
        """What was published last; None before the first commit of all."""
        return self._state

    @property
    def other_names(self) -> tuple[str, ...]:
        """Captures that have published to the same topic; there are none where that is not accepted."""
        return self._other_names

    @property
    def sent_count(self) -> int:
        """How many records the open transaction has."""
        return self._sent_count

    def send(self, records: Iterable[Record]) -> None:
        """Send records as part of the open transaction, which is begun if none is."""
        # Once for each row, so without a context manager, which takes longer than all the rest of it.
        try:
            if not self._is_open:
                self._begin()
            self._sent_count += self._produce(records)
        except (KafkaException, TimeoutError) as error:
            raise self._in_own_words(error) from error

    def commit(self, state: CaptureState) -> None:
        """Commit what was sent, and the state with it."""
        with self._told():
            self._begin()
            hit("capture.sent")
            self._produce([Record(self._topics.state_topic, self._key, to_json(state))])
            self._commit()
        self._state, self._is_open, self._sent_count = state, False, 0
        hit("capture.committed")

    def forget(self) -> None:
        """Have no state any more."""
        with self._told():
            self._begin()
            self._produce([Record(self._topics.state_topic, self._key, None)])
            self._commit()
        self._state, self._is_open, self._sent_count = None, False, 0

    def abort(self) -> None:
        """Give up what was sent since the last commit, so that no reader has to wait for it to time out."""
        if self._is_open:
            # Where that fails, the next publisher does it, or the broker when it times out.
            with suppress(KafkaException):
                self._producer.abort_transaction(min(self._answer_s_max, ABORT_S_MAX))
            self._is_open, self._sent_count = False, 0

    def close(self) -> None:
        """Give up what is not committed, and let go of the client."""
        self.abort()
        # One that another has taken over from has nothing to say any more.
        with suppress(KafkaException):
            self._producer.flush(0)

    @property
    def _clients(self) -> dict[str, Any]:
        # Their own log would repeat what errors say.
        return {
            **_settings(self._config.client_options),
            "bootstrap.servers": self._config.bootstrap,
            "log_level": 0,
        }

    def _produce(self, records: Iterable[Record]) -> int:
        """Hand records to the client, waiting where it has no room; return their count."""
        produce, poll, is_known = self._producer.produce, self._producer.poll, self._topics.is_known
        count = 0
        for topic, key, value, headers in records:
            if not is_known(topic):
                self._topics.ensure(topic)
            ending_s: float | None = None
            while True:
                try:
                    if headers:
                        produce(topic, value, key, headers=list(headers))
                    else:
                        produce(topic, value, key)
                except BufferError:
                    poll(_BUFFER_FULL_S)
                    ending_s = self._checked_for_end(ending_s)
                else:
                    break
            count += 1
        return count

    def _checked_for_end(self, ending_s: float | None) -> float | None:
        """Since when room is waited for although somebody ends the capture; not longer than for an abort."""
        if not self._is_ending():
            return None
        if ending_s is not None and time.monotonic() - ending_s >= ABORT_S_MAX:
            raise BrokerUnavailable(
                f"capture {self._config.name} ends while {self._config.bootstrap} takes nothing: what is not "
                "committed is published after the next start"
            )
        return time.monotonic() if ending_s is None else ending_s

    def _commit(self) -> None:
        """Commit, in steps between which signals are heard: a broker may be gone for minutes."""
        now_s = time.monotonic()
        deadline_s = now_s + self._config.transaction_s_max
        time.sleep(max(0.0, self._begun_s + _REGISTERED_S - now_s))
        while True:
            try:
                self._producer.commit_transaction(COMMIT_STEP_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline_s or self._is_ending():
                    raise
            else:
                return

    def _begin(self) -> None:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
            self._begun_s = time.monotonic()

    def _last_state(self, *, accepts_any: bool) -> tuple[CaptureState | None, tuple[str, ...]]:
        config, topic = self._config, self._topics.state_topic
        found = find_last_state(
            self._clients,
            topic,
            self._key,
            group=f"headrace.capture.{config.name}",
            answer_s_max=self._answer_s_max,
        )
        if found.other_keys and not accepts_any:
            raise ConfigError(
                f"capture {config.name} can't publish to {config.prefix}.*: capture "
                f"{', '.join(found.other_keys)} does, by topic {topic}. Remove one of them, and add it again "
                "with a --prefix of its own"
            )
        try:
            state = None if found.value is None else from_json(found.value, topic)
        except CaptureFailed:
            if not accepts_any:
                raise
            state, self.has_unreadable_state = None, True
        return state, found.other_keys

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say what failed in our own words."""
        try:
            yield
        except (KafkaException, TimeoutError) as error:
            raise self._in_own_words(error) from error

    def _in_own_words(self, error: KafkaException | TimeoutError) -> HeadraceError:
        if isinstance(error, KafkaException):
            return self._explained(self._cause(error.args[0]))
        return self._explained(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - as above

    def _cause(self, error: KafkaError) -> KafkaError:
        """What has failed, where all that is said is that something has, earlier in the transaction."""
        if error.code() == KafkaError._STATE:  # noqa: SLF001 - as above
            try:
                # Not done in this state, and answered with the reason.
                self._producer.begin_transaction()
            except KafkaException as reason:
                return reason.args[0]  # type: ignore[no-any-return]
        return error

    def _explained(self, error: KafkaError) -> HeadraceError:
        name = self._config.name
        if error.code() in _FENCED:
            return CaptureReplaced(
                f"capture {name} was taken over by another process of the same name, or a transaction took "
                f"longer than {self._config.transaction_s_max} s (transaction_s_max): let only one run"
            )
        if error.code() in _REFUSED:
            return CaptureFailed(f"capture {name} can't publish: {error.str()}: {_REFUSED[error.code()]}")
        if error.code() in _UNREACHABLE or error.txn_requires_abort():
            return BrokerUnavailable(
                f"capture {name} can't publish to {self._config.bootstrap} for now: {error.str()}"
            )
        return CaptureFailed(f"capture {name} can't publish: {error.str()}")


def _settings(options: Mapping[str, str]) -> dict[str, str | int | float | bool]:
    return dict(options)
