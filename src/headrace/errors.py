"""Everything Headrace raises on purpose.

    HeadraceError
    ├── UsageError               you asked for something that can't be; the message says what to do
    │   ├── ConfigError          a setting, an option or an environment variable has a bad value
    │   ├── SetupError           the machine lacks something: Java, connector jars, an extra
    │   ├── PipelineError        a pipeline is defined or called in a way that can't run
    │   │   └── PipelineReplaced another run of the pipeline has taken over, from another checkpoint
    │   ├── SqlError             a statement of SQL can't be understood, or can't be run
    │   ├── EventsError          an event store is used in a way that can't be
    │   │   ├── Refused          a command was refused by its decider, which says why
    │   │   ├── AppendConflict   others have appended what the decision did not know: decide again
    │   │   │   ├── VersionConflict    the stream has another version than was expected
    │   │   │   └── ConditionConflict  an event that the condition rules out has come
    │   │   ├── CommandIdReused  another command has the command id already
    │   │   ├── SubjectForgotten a person was forgotten, and nothing personal can be kept any more
    │   │   └── UnreadableEvents stored events are of a type or version that no code reads
    │   ├── CaptureReplaced      another process has taken the capture over
    │   ├── BridgeReplaced       another process has taken the bridge over
    │   ├── ProjectionReplaced   a projection is at another version or generation than this code
    │   ├── DataDirectoryInUse   another process owns the data directory
    │   ├── TopicExists          a topic of that name is already there
    │   ├── UnknownTopic         no topic has that name
    │   ├── PartitionClosed      the partition was closed, or its topic deleted
    │   ├── OffsetOutOfRange     the partition has no such offset, or has it no more
    │   ├── QueueRefused         a client of queues asked for what can't be; has AMQP's reply code
    │   └── BatchTooLarge        a record batch is larger than the topic takes
    └── FaultError               the other side, the disk or a child process is wrong
        ├── StorageError         the disk failed; nothing after the last acknowledgement is promised
        │   ├── CorruptBatch     bytes on disk or on the wire don't match their checksum or layout
        │   └── TooManyOpenFiles no further file could be opened; nothing was written, nothing is lost
        ├── InvalidRecord        a record can't be kept in its topic: it has no key, or can't be read
        ├── InvalidTimestamp     a record's timestamp is one that its topic does not take
        ├── OutOfOrderSequence   a producer's batch does not follow the last one that it sent
        ├── InvalidProducerEpoch a newer instance of the producer has taken over
        ├── InvalidTransactionState  a batch or a request does not fit the state of its transaction
        ├── TransactionCoordinatorFenced  a newer instance of the transaction's coordinator has taken over
        ├── ProtocolError        a peer sent bytes that are not the protocol; its connection is closed
        ├── BrokerUnavailable    no broker answers at the address
        ├── QueueServerUnavailable  no queue server answers at the address, or it has hung up
        ├── QueueServerRefused   a queue server has refused what it was asked for, with a code of AMQP
        ├── BridgeFailed         a bridge between a queue and a topic has stopped on an error
        ├── StoreUnavailable     a database does not answer, or has given up for now
        ├── SlotLost             a replication slot has lost changes, or is another's
        ├── CaptureFailed        a capture was running and stopped on an error
        ├── PipelineFailed       a pipeline was running and stopped on an error
        ├── ProjectionStopped    a projection stands still at an event that it can't take
        ├── NotYetProjected      a projection did not come to a position in the time given
        └── ChildFailed          a supervised process ended and may not be started again

`retriable` says whether the same call may succeed later with nothing changed. `definite` says whether
the operation certainly did not happen; after an error that is not definite, it may have.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HeadraceError(Exception):
    """The root of all errors that Headrace raises on purpose."""

    retriable: ClassVar[bool] = False
    definite: ClassVar[bool] = True


class UsageError(HeadraceError):
    """You asked for something that can't be."""


class ConfigError(UsageError):
    """A setting, an option or an environment variable has a bad value."""


class SetupError(UsageError):
    """The machine lacks something that this command needs."""


class PipelineError(UsageError):
    """A pipeline is defined or called in a way that can't run."""


class PipelineReplaced(PipelineError):
    """Another run of the pipeline has taken over, from another checkpoint: this one must not come back."""


class SqlError(UsageError):
    """A statement of SQL can't be understood, or can't be run."""


class EventsError(UsageError):
    """An event store is used in a way that can't be."""


class Refused(EventsError):
    """A command was refused by its decider. The message is the reason, in the words of the business."""


class AppendConflict(EventsError):
    """Nothing was appended: others have appended what the decision did not know. Decide again."""

    retriable = True


class VersionConflict(AppendConflict):
    """The stream has another version than was expected.

    `newer` are the events that came after the expected version, as `events.Recorded`, oldest first. Where
    there are very many, it is the first of them.
    """

    def __init__(
        self, message: str, *, stream: str, expected: int, actual: int, newer: tuple[Any, ...] = ()
    ) -> None:
        super().__init__(message)
        self.stream = stream
        self.expected = expected
        self.actual = actual
        self.newer = newer


class ConditionConflict(AppendConflict):
    """An event that the condition rules out has come.

    `newer` are the events that the condition names and that came after its position, oldest first.
    """

    def __init__(self, message: str, *, position: int, newer: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.position = position
        self.newer = newer


class CommandIdReused(EventsError):
    """Another command has the command id already."""


class SubjectForgotten(EventsError):
    """A person was forgotten, and nothing personal can be kept under that name any more."""


class UnreadableEvents(EventsError):
    """Stored events are of a type or version that no code reads."""


class CaptureReplaced(UsageError):
    """Another process has taken the capture over: this one must not come back."""


class BridgeReplaced(UsageError):
    """Another process has taken the bridge over, or has it: only one may run."""


class ProjectionReplaced(UsageError):
    """A projection is at another version or generation than this code: it must not go on with it."""


class DataDirectoryInUse(UsageError):
    """Another process owns the data directory."""


class TopicExists(UsageError):
    """A topic of that name is already there."""


class UnknownTopic(UsageError):
    """No topic has that name."""


class PartitionClosed(UsageError):
    """The partition was closed, or its topic deleted."""


class OffsetOutOfRange(UsageError):
    """The partition has no such offset, or has it no more."""


class QueueRefused(UsageError):
    """A client of queues asked for what can't be. Its channel is closed, or its connection."""

    def __init__(self, reply_code: int, reply_text: str, *, closes_connection: bool = False) -> None:
        super().__init__(reply_text)
        self.reply_code = reply_code
        self.reply_text = reply_text
        """Begins with the code's name, as in "NOT_FOUND - no queue 'mails' in vhost '/'"."""
        self.closes_connection = closes_connection


class BatchTooLarge(UsageError):
    """A record batch is larger than the topic takes."""


class FaultError(HeadraceError):
    """The other side, the disk or a child process is wrong."""


class StorageError(FaultError):
    """The disk failed. Whether the last write happened is not known."""

    definite = False


class CorruptBatch(StorageError):
    """Bytes don't match their checksum or their layout."""

    definite = True


class TooManyOpenFiles(StorageError):
    """No further file could be opened, so that nothing was attempted; it may work once others are closed."""

    retriable = True
    definite = True


class InvalidRecord(FaultError):
    """A record can't be kept in its topic: it has no key, or can't be read.

    `record_numbers` are the places, in the batch that is refused, of the records that are at fault.
    """

    def __init__(self, message: str, record_numbers: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.record_numbers = record_numbers


class InvalidTimestamp(FaultError):
    """A record's timestamp is one that its topic does not take."""


class OutOfOrderSequence(FaultError):
    """A producer's batch does not follow the last one that it sent."""


class InvalidProducerEpoch(FaultError):
    """A newer instance of the producer has taken over."""


class InvalidTransactionState(FaultError):
    """A batch or a request does not fit the state of its transaction."""


class TransactionCoordinatorFenced(FaultError):
    """A newer instance of the transaction's coordinator has taken over."""


class ProtocolError(FaultError):
    """A peer sent bytes that are not the protocol."""


class BrokerUnavailable(FaultError):
    """No broker answers at the address."""

    retriable = True


class QueueServerUnavailable(FaultError):
    """No queue server answers at the address, or it has hung up: what was not confirmed may have happened."""

    retriable = True
    definite = False


class QueueServerRefused(FaultError):
    """A queue server has refused what it was asked for; `reply_code` is the code of AMQP that says why."""

    def __init__(self, message: str, *, reply_code: int) -> None:
        super().__init__(message)
        self.reply_code = reply_code


class BridgeFailed(FaultError):
    """A bridge between a queue and a topic has stopped on an error; it may go on from where it was."""


class StoreUnavailable(FaultError):
    """A database does not answer, or has given up for now."""

    retriable = True
    definite = False


class SlotLost(FaultError):
    """A replication slot has lost changes, or is another's: going on would hide that some are missing."""


class CaptureFailed(FaultError):
    """A capture was running and stopped on an error; it may go on from what it has published."""


class PipelineFailed(FaultError):
    """A pipeline was running and stopped on an error; it may go on from its checkpoint."""


class ProjectionStopped(FaultError):
    """A projection stands still at an event that it can't take; it goes on from there with mended code."""


class NotYetProjected(FaultError):
    """A projection did not come to a position in the time given; it may do so later."""

    retriable = True


class ChildFailed(FaultError):
    """A supervised process ended and may not be started again."""
