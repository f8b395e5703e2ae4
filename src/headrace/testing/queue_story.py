"""A story of queues under faults, played from a seed, and what must be true of it.

Publishers publish with confirms, workers take, acknowledge, give back and reject, into queues with a
dead-letter queue behind them. Now and then the process is killed, the power goes (also in the middle of a
write), or the broker stops in good order. At the end everything that is left is taken out.

- What was confirmed is there, until it has been acknowledged.
- What was acknowledged, and noted on disk, does not come back.
- What comes a second time is flagged as redelivered. A dead letter is another message: its first delivery
  from the dead-letter queue need not be flagged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from headrace.queue.limits import QueueLimits
from headrace.queue.properties import write_properties
from headrace.testing.disk import PowerLoss, SimulatedDisk
from headrace.testing.queues import QueueBench, RecordingSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.queue.channel import Channel

LASTING: Final = write_properties(is_persistent=True)
PASSING: Final = write_properties()
QUEUES: Final = ("work", "ranked", "short")
DEAD: Final = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
ARGUMENTS: Final[dict[str, dict[str, object]]] = {
    "work": {**DEAD, "x-delivery-limit": 3},
    "ranked": {**DEAD, "x-max-priority": 2},
    "short": {**DEAD, "x-max-length": 5},
    "dead": {},
}
LIMITS: Final = QueueLimits(
    resident_count_max=6, resident_count_all_max=1, journal_segment_bytes=8192, resident_bytes_max=2000
)
TICK_S: Final = 0.002


@dataclass(slots=True)
class Fate:
    """What is known of one message."""

    is_confirmed: bool = False
    is_settled: bool = False
    """Acknowledged, or given up, and that is on disk."""
    may_be_settled: bool = False
    delivered_from: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a story came to."""

    published_count: int
    confirmed_count: int
    acked_count: int
    crash_count: int
    redelivered_count: int
    reclaimed: bool
    violations: tuple[str, ...]


class _Publisher(RecordingSink):
    """Knows which of its messages are confirmed."""

    def __init__(self, fates: dict[bytes, Fate]) -> None:
        super().__init__()
        self._fates = fates
        self.pending: dict[int, bytes] = {}
        self.count = 0

    def sent(self, body: bytes) -> None:
        self.count += 1
        self.pending[self.count] = body

    def confirmed(self, delivery_tag: int, multiple: bool) -> None:
        tags = [tag for tag in self.pending if tag <= delivery_tag] if multiple else [delivery_tag]
        for tag in tags:
            body = self.pending.pop(tag, None)
            if body is not None:
                self._fates[body].is_confirmed = True


class QueueStory:
    """One story."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  # A story that can be repeated.
        self.bench = QueueBench(disk=SimulatedDisk(), limits=LIMITS, seed=seed)
        self.fates: dict[bytes, Fate] = {}
        self.violations: list[str] = []
        self.crash_count = 0
        self.redelivered_count = 0
        self.reclaimed = False
        self._declare()
        self._connect()

    def play(self, step_count: int) -> Verdict:
        """Play the story, and judge it."""
        for _ in range(step_count):
            try:
                self._step()
            except PowerLoss:
                self._crash(self.bench.lose_power)
        self._take_out_everything()
        return Verdict(
            published_count=len(self.fates),
            confirmed_count=sum(fate.is_confirmed for fate in self.fates.values()),
            acked_count=sum(fate.is_settled for fate in self.fates.values()),
            crash_count=self.crash_count,
            redelivered_count=self.redelivered_count,
            reclaimed=self.reclaimed,
            violations=tuple(self.violations),
        )

    def _declare(self) -> None:
        channel, _ = self.bench.channel()
        for name, arguments in ARGUMENTS.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
        self.bench.run()

    def _connect(self) -> None:
        self._sink = _Publisher(self.fates)
        self._publisher = self.bench.connection().open_channel(self._sink)
        self._publisher.confirm_select()
        self._worker_sink = RecordingSink()
        self._worker: Channel = self.bench.connection().open_channel(self._worker_sink)
        self._held: dict[int, tuple[str, bytes]] = {}
        self._seen = 0
        self._worker.basic_qos(self.random.choice((3, 10, 30)))
        for queue in (*QUEUES, "dead"):
            if self.random.random() < 0.8:
                self._worker.basic_consume(queue, queue)

    def _step(self) -> None:
        chance = self.random.random()
        if chance < 0.45:
            self._publish()
        elif chance < 0.85:
            self._settle()
        elif chance < 0.985:
            self.bench.run(self.random.uniform(0, TICK_S))
        else:
            self._fault()
        self._note_deliveries()
        assert self.bench.engine is not None
        self.reclaimed = self.reclaimed or self.bench.engine.log.start_offset > 0

    def _publish(self) -> None:
        for _ in range(self.random.randint(1, 8)):
            body = b"%d " % len(self.fates) + b"x" * self.random.randint(0, 300)
            is_lasting = self.random.random() < 0.9
            self.fates[body] = Fate()
            if is_lasting:
                self._sink.sent(body)
            else:
                self._sink.count += 1
                self.fates[body].may_be_settled = True
            properties = LASTING if is_lasting else PASSING
            self._publisher.basic_publish("", self.random.choice(QUEUES), properties, body)

    def _settle(self) -> None:
        for tag in self.random.sample(list(self._held), min(len(self._held), self.random.randint(1, 12))):
            self._settle_one(tag)

    def _settle_one(self, tag: int) -> None:
        queue, body = self._held.pop(tag)
        chance = self.random.random()
        if chance < 0.7:
            self._worker.basic_ack(tag)
            fate = self.fates[body]
            fate.may_be_settled = True
            self.bench.broker.when_durable(lambda: setattr(fate, "is_settled", True))
        else:
            self._worker.basic_nack(tag, requeue=chance < 0.85)
            if queue == "dead" and chance >= 0.85:
                self.fates[body].may_be_settled = True

    def _note_deliveries(self) -> None:
        for each in self._worker_sink.deliveries[self._seen :]:
            self._note(each.consumer_tag, each.body, redelivered=each.redelivered)
            self._held[each.delivery_tag] = (each.consumer_tag, each.body)
        self._seen = len(self._worker_sink.deliveries)

    def _note(self, queue: str, body: bytes, *, redelivered: bool) -> None:
        fate = self.fates[body]
        self.redelivered_count += redelivered
        if fate.is_settled:
            self.violations.append(f"{body[:8]!r} was acknowledged, and came again from {queue}")
        if queue in fate.delivered_from and not redelivered:
            self.violations.append(f"{body[:8]!r} came twice from {queue}, and was not flagged")
        fate.delivered_from.add(queue)

    def _fault(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            self._crash(self.bench.kill)
        elif chance < 0.6:
            self._crash(self.bench.lose_power)
        elif chance < 0.8:
            assert self.bench.disk is not None
            self.bench.disk.lose_power_after(self.random.randint(1, 6))
        else:
            self._stop()

    def _stop(self) -> None:
        self.bench.run()
        self._note_deliveries()
        self.bench.restart()
        self._connect()

    def _crash(self, end: Callable[[], None]) -> None:
        # What was handed to a connection before the end may have reached its client.
        self._note_deliveries()
        self.crash_count += 1
        end()
        self.bench.open()
        self._connect()

    def _take_out_everything(self) -> None:
        assert self.bench.disk is not None
        self.bench.disk.heal()
        self._stop()
        left: set[bytes] = set()
        channel, sink = self.bench.channel()
        self._worker.connection.close()
        for queue in (*QUEUES, "dead"):
            channel.basic_consume(queue, queue)
        self.bench.run(10)
        for each in sink.deliveries:
            self._note(each.consumer_tag, each.body, redelivered=each.redelivered)
            left.add(each.body)
        for body, fate in self.fates.items():
            if fate.is_confirmed and not fate.may_be_settled and body not in left:
                self.violations.append(f"{body[:8]!r} was confirmed, and is lost")
