"""Named places where a test can stop, fail or delay a broker or a pipeline. In production they do nothing.

    hit("log.sync")             in the code: this is the place
    log.sync=kill@3             in HEADRACE_FAILPOINTS: the third time, the process kills itself
    log.sync=error:EIO          the first time, the disk reports an error
    log.sync=delay:50           each time, it takes 50 ms longer

Several are separated by semicolons. `headrace.testing.failpoints` arms them within a process. As long as none
is armed, a place costs one look into an empty dictionary.

Places that begin with `pipeline.task.` lie in the tasks of a batch, which run in processes of their own, or
in the driver where it does their work. They are counted by batches, and happen in whatever task gets there
first. A kill there takes the driver and its Java along: the whole pipeline dies at once, as it does with its
machine.

`kill` is SIGKILL: no handler runs and nothing is flushed, though what was written stays in the page cache. To
lose that, too, use `headrace.testing.disk.SimulatedDisk`.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

Action = Literal["kill", "error", "delay"]

FAILPOINTS: Final = {
    "log.append": "a batch was checked and is about to be written",
    "log.append.half": "the first half of a batch was written, the rest was not",
    "log.appended": "a batch was written and not synced",
    "log.sync": "a partition is about to be synced",
    "log.synced": "a partition was synced, and nobody knows of it yet",
    "log.roll": "the next batch begins a new segment, whose file is not there yet",
    "log.seal": "a segment that was rolled is synced and has no index files yet",
    "log.sealed": "a segment's index files are written, and their names not synced",
    "log.checkpoint": "a partition's snapshot is written, and its checkpoint is not",
    "log.start": "records are about to be deleted, and the log's new start is not written",
    "log.started": "the log's new start is durable, and the files below it are there",
    "log.compact": "a compacted segment is written beside those that it replaces",
    "log.compacted": "a compacted segment counts, and the files that it replaces are there",
    "store.producer_ids": "a block of producer ids is about to be reserved",
    "store.producer_ids.reserved": "a block of producer ids is reserved, and none of it given out",
    "store.topic.create": "a new topic's directories are made, and its manifest is not",
    "store.topic.created": "a new topic's manifest is durable, and nobody knows of it yet",
    "store.topic.delete": "a topic's manifest is gone, and its files are there",
    "kafka.produce.durable": "a request's batches are durable, and the producer does not know it",
    "kafka.answered": "an answer was handed to the socket",
    "kafka.offsets.append": "committed offsets are about to be written",
    "kafka.offsets.durable": "committed offsets are durable, and the member does not know it",
    "kafka.share.append": "what became of a share group's records is about to be written",
    "kafka.share.durable": "what became of a share group's records is durable, and nobody knows of it",
    "kafka.transaction.added": "partitions were added to a transaction, durably, and nobody knows of it",
    "kafka.transaction.prepared": "a transaction's outcome is durable, and no marker is written",
    "kafka.transaction.marker": "a marker was written; hit once for each partition",
    "kafka.transaction.marked": "all markers of a transaction are durable, and its end is not written",
    "kafka.transaction.completed": "the end of a transaction is written, and the producer does not know it",
    "queue.flush": "what clients of queues did is about to be written to the journal",
    "queue.publish.before_sync": "messages are written to the journal and not synced",
    "queue.publish.before_confirm": "messages are durable in the journal, and their publishers don't know it",
    "queue.sent": "bytes were handed to the socket of a client of queues",
    "queue.delivered": "a message was handed to its consumer's connection; hit once for each delivery",
    "queue.ack.before_sync": "acknowledgements are written to the journal and not synced",
    "queue.dead_letter": "a dead letter's copy is in its queue, and its original is not gone",
    "queue.reclaim": "the journal's oldest messages are copied to its end, and its start is not moved",
    "queue.reclaimed": "the journal's start is moved, and the files below it are there",
    "capture.slot": "a capture has noted that it makes its slot, which is not there yet",
    "capture.slot.made": "a capture's slot is there, and nothing is published",
    "capture.snapshot": "the rows of a chunk of a snapshot are sent, and their transaction is open",
    "capture.handover": "the initial snapshot is published, and the stream is not begun",
    "capture.sent": "events are sent, their position is not, and their transaction is open",
    "capture.committed": "events and position are committed, and the database does not know it",
    "capture.confirmed": "the database was told that events are published",
    "bridge.topic.sent": "messages are sent to a topic, and their transaction is open",
    "bridge.topic.committed": "messages are committed to a topic, and the queue does not know it",
    "bridge.topic.acknowledged": "messages were handed over to a topic, and acknowledged to the queue",
    "bridge.queue.published": "records are published to a queue, and their transaction is open",
    "bridge.queue.committed": "records are committed: to a queue with the position, to an exchange before it",
    "redrive.confirmed": "a dead letter's copy is confirmed, and the original is not acknowledged",
    "push.accepted": "a message was accepted by a URL, and the queue does not know it",
    "push.dead_lettered": "a message that was given up is a dead letter, and the queue does not know it",
    "pipeline.batch": "a batch is planned, and nothing of it is written",
    "pipeline.task.begun": "a task has read in the ledger that its share is to be written",
    "pipeline.task.produced": "a task has sent its share, and its transaction is open",
    "pipeline.task.committed": "a task's transaction is committed, and those of others may be open",
    "pipeline.written": "all of a batch is written, and Spark does not know it",
    "pipeline.side.written": "the rows that left operators beside their results are written as well",
    "events.append": "events are about to be appended",
    "events.appended": "events are appended, and nobody knows of it yet",
    "replay.swap": "replayed rows are about to take the place of a table's rows",
    "replay.swapped": "replayed rows have taken the place of a table's rows, and nobody knows of it yet",
    "events.batch.applied": "a projection has taken a batch of events, and its transaction is open",
    "events.batch.committed": "a batch of events and its position are committed, and nobody knows of it yet",
    "events.rebuild": "a new generation of a projection is there, and has seen no event",
    "events.swap": "a new generation has taken the place of the live one, in a transaction that is open",
    "events.swapped": "a new generation is live, and what the former one kept is there",
    "events.effect.sent": "an effect was sent, and that is not noted yet",
    "events.process.executed": "a command of a process was executed or refused, and that is not noted yet",
    "events.process.timer": "a timer of a process has had its effect, in a transaction that is open",
}
"""All places by name."""

_SPEC: Final = re.compile(
    r"(?P<name>[a-z_.]+)=(?P<action>kill|error|delay)(:(?P<argument>\w+))?(@(?P<hit>\d+))?"
)


@dataclass(slots=True)
class Failpoint:
    """What happens at a place."""

    name: str
    action: Action
    hits_left: int = 1
    """It happens at this hit, counted from one; `delay` also at all later ones."""
    error: int = errno.EIO
    delay_ms: int = 0
    victims: tuple[int, ...] = ()
    """Processes that `kill` kills first, before this one."""

    def __post_init__(self) -> None:
        if self.name not in FAILPOINTS:
            raise ConfigError(f"there is no failpoint {self.name!r}; there are {', '.join(FAILPOINTS)}")
        if self.action == "error" and self.name.startswith("kafka."):
            raise ConfigError(f"failpoint {self.name} can't report an error: no disk is asked there")
        if self.hits_left < 1:
            raise ConfigError(f"failpoint {self.name} can't happen at hit {self.hits_left}: count from 1")

    @classmethod
    def parse(cls, spec: str) -> Failpoint:
        """Read `name=action`, with `:argument` and `@hit` after it."""
        match = _SPEC.fullmatch(spec.strip())
        if match is None:
            raise ConfigError(
                f"{spec!r} is no failpoint: write name=kill, name=error:EIO or name=delay:50, "
                "and @3 after it for the third hit"
            )
        argument = match["argument"]
        action: Action = match["action"]  # type: ignore[assignment]  # the pattern allows no other
        failpoint = cls(match["name"], action, hits_left=int(match["hit"] or 1))
        if argument is not None:
            failpoint._take(argument)
        return failpoint

    def _take(self, argument: str) -> None:
        code = getattr(errno, argument, None)
        if self.action == "error" and isinstance(code, int):
            self.error = code
        elif self.action == "delay" and argument.isdecimal():
            self.delay_ms = int(argument)
        else:
            raise ConfigError(f"{self.action} of failpoint {self.name} can't take {argument!r}")


_armed: Final[dict[str, Failpoint]] = {}
_lock: Final = Lock()


def arm(failpoints: Iterable[Failpoint]) -> None:
    """Let things happen at places, in this whole process."""
    with _lock:
        _armed.update({failpoint.name: failpoint for failpoint in failpoints})


def arm_all(specs: str) -> None:
    """Arm what a setting names: specs, separated by semicolons."""
    arm([Failpoint.parse(spec) for spec in specs.split(";") if spec.strip()])


def disarm(name: str) -> None:
    """Let nothing happen at a place any more."""
    with _lock:
        _armed.pop(name, None)


def is_armed(name: str) -> bool:
    """Whether nothing after the next hit of a place will happen as it should."""
    if not _armed:
        return False
    failpoint = _armed.get(name)
    return failpoint is not None and failpoint.hits_left <= 1 and failpoint.action != "delay"


def hit(name: str) -> None:
    """Be at a place. Raises OSError where an error was asked for."""
    if _armed and name in _armed:
        _act(name)


def draw(name: str) -> Failpoint | None:
    """Be at a place, and return what is to happen there, for another process to do it."""
    with _lock:
        failpoint = _armed.get(name)
        if failpoint is None:
            return None
        failpoint.hits_left -= 1
        if failpoint.hits_left > 0:
            return None
        if failpoint.action != "delay":
            del _armed[name]
    return failpoint


def _act(name: str) -> None:
    failpoint = draw(name)
    if failpoint is None:
        return
    if failpoint.action == "kill":
        for victim in failpoint.victims:
            os.kill(victim, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    elif failpoint.action == "error":
        raise OSError(failpoint.error, f"{os.strerror(failpoint.error)} (failpoint {name})")
    else:
        time.sleep(failpoint.delay_ms / 1000)
