"""Queues beside a model of them that is as plain as can be: lists, searched from the front."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.queue.limits import QueueLimits
from headrace.queue.properties import headers_of, write_properties
from headrace.testing.disk import SimulatedDisk
from headrace.testing.queues import QueueBench

QUEUES = ("plain", "short", "ranked", "limited")
DEAD: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
ARGUMENTS: dict[str, dict[str, object]] = {
    "plain": DEAD,
    "short": DEAD | {"x-max-length": 3},
    "ranked": DEAD | {"x-max-priority": 2},
    "limited": DEAD | {"x-delivery-limit": 1},
    "dead": {},
}
LIMITS = QueueLimits(resident_count_max=4, resident_count_all_max=1, journal_segment_bytes=4096)


@dataclass(eq=False)
class Item:
    body: bytes
    position: int
    is_persistent: bool
    priority: int = 0
    count: int = 0
    may_be_flagged: bool = False
    must_be_flagged: bool = False


@dataclass(eq=False)
class Taker:
    tag: str
    prefetch: int
    held: list[Item] = field(default_factory=list)


class Model:
    """What queues should do."""

    def __init__(self) -> None:
        self.ready: dict[str, list[Item]] = {name: [] for name in (*QUEUES, "dead")}
        self.held: dict[bytes, tuple[str, Item, Taker | None]] = {}
        self.takers: dict[str, list[Taker]] = {name: [] for name in QUEUES}
        self.next_position = 0
        self.expected: list[tuple[str, bytes]] = []

    def publish(self, queue: str, body: bytes, *, is_persistent: bool, priority: int) -> None:
        self.next_position += 1
        item = Item(body, self.next_position, is_persistent, min(priority, 2) if queue == "ranked" else 0)
        self.ready[queue].append(item)
        self.deliver(queue)
        if queue == "short":
            while len(self.ready[queue]) > 3:
                self.die(self.ready[queue].pop(0))

    def first(self, queue: str) -> Item | None:
        return min(self.ready[queue], key=lambda item: (-item.priority, item.position), default=None)

    def take(self, queue: str) -> Item | None:
        item = self.first(queue)
        if item is not None:
            self.ready[queue].remove(item)
        return item

    def deliver(self, queue: str) -> None:
        takers = self.takers.get(queue, [])
        while self.ready[queue]:
            taker = next((each for each in takers if len(each.held) < each.prefetch), None)
            if taker is None:
                return
            takers.remove(taker)
            takers.append(taker)
            item = self.take(queue)
            assert item is not None
            taker.held.append(item)
            self.held[item.body] = (queue, item, taker)
            self.expected.append((taker.tag, item.body))

    def let_go(self, body: bytes) -> tuple[str, Item]:
        queue, item, taker = self.held.pop(body)
        if taker is not None:
            taker.held.remove(item)
        item.must_be_flagged = item.may_be_flagged = True
        return queue, item

    def give_back(self, body: bytes) -> str:
        queue, item = self.let_go(body)
        item.count += 1
        if queue == "limited" and item.count > 1:
            self.die(item)
            return queue
        self.ready[queue].append(item)
        self.ready[queue].sort(key=lambda each: each.position)
        if queue == "short":
            while len(self.ready[queue]) > 3:
                self.die(self.ready[queue].pop(0))
        return queue

    def die(self, item: Item) -> None:
        self.next_position += 1
        self.ready["dead"].append(Item(item.body, self.next_position, item.is_persistent))

    def stop(self, *, in_good_order: bool) -> None:
        """What is not persistent is gone, and nobody holds anything."""
        for taker in [each for takers in self.takers.values() for each in takers]:
            taker.prefetch = 0
        for body in sorted(self.held, key=lambda each: -self.held[each][1].position):
            if in_good_order:
                self.give_back(body)
            else:
                # The process had no time to count that they came back.
                queue, item = self.let_go(body)
                self.ready[queue].append(item)
        for queue, items in self.ready.items():
            items[:] = sorted((each for each in items if each.is_persistent), key=lambda each: each.position)
            for item in items:
                if not in_good_order or queue == "ranked":
                    item.may_be_flagged = True
        self.takers = {name: [] for name in QUEUES}
        self.expected = []


class QueuesBesideTheModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = QueueBench(disk=SimulatedDisk(), limits=LIMITS)
        self.model = Model()
        self.tags: dict[bytes, int] = {}
        self.bodies = 0
        self.consumers = 0
        self.open_channels()

    def open_channels(self) -> None:
        self.publisher, self.published = self.bench.channel()
        self.worker, self.sink = self.bench.channel()
        self.seen = 0
        self.tags.clear()

    @initialize()
    def declare(self) -> None:
        for name, arguments in ARGUMENTS.items():
            self.publisher.queue_declare(name, durable=True, arguments=arguments)
        self.bench.run()

    @rule(
        queue=st.sampled_from(QUEUES),
        is_persistent=st.booleans(),
        priority=st.integers(0, 3),
        count=st.integers(1, 12),
    )
    def publish(self, queue: str, is_persistent: bool, priority: int, count: int) -> None:
        for _ in range(count):
            self.bodies += 1
            body = b"%d " % self.bodies + b"x" * (self.bodies * 37 % 200)
            properties = write_properties(is_persistent=is_persistent, priority=priority)
            self.publisher.basic_publish("", queue, properties, body)
            self.bench.run(0.1)
            self.model.publish(queue, body, is_persistent=is_persistent, priority=priority)

    @rule(queue=st.sampled_from((*QUEUES, "dead")))
    def fetch(self, queue: str) -> None:
        expected = self.model.take(queue)
        found: list[tuple[bytes, int, bool]] = []
        self.worker.basic_get(
            queue,
            lambda got: (
                found.append((bytes(got.message.body or b""), got.delivery_tag, got.redelivered))
                if got
                else None
            ),
        )
        self.bench.run(0.1)
        assert [body for body, _, _ in found] == ([] if expected is None else [expected.body])
        if expected is not None:
            self.check_flag(expected, redelivered=found[0][2])
            self.model.held[expected.body] = (queue, expected, None)
            self.tags[expected.body] = found[0][1]

    @rule(queue=st.sampled_from(QUEUES), prefetch=st.integers(1, 3))
    def consume(self, queue: str, prefetch: int) -> None:
        self.consumers += 1
        tag = f"{queue} {self.consumers}"
        self.worker.basic_qos(prefetch)
        self.worker.basic_consume(queue, tag)
        self.bench.run(0.1)
        self.model.takers[queue].append(Taker(tag, prefetch))
        self.model.deliver(queue)
        self.check_deliveries()

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), how=st.sampled_from(["ack", "requeue", "reject"]))
    def settle(self, data: st.DataObject, how: str) -> None:
        body = data.draw(st.sampled_from(sorted(self.model.held)))
        self.act(self.tags.pop(body), how)
        self.bench.run(0.1)
        if how == "requeue":
            queue = self.model.give_back(body)
        else:
            queue, item = self.model.let_go(body)
            if how == "reject" and queue != "dead":
                self.model.die(item)
        self.model.deliver(queue)
        self.check_deliveries()

    def act(self, tag: int, how: str) -> None:
        if how == "ack":
            self.worker.basic_ack(tag)
        else:
            self.worker.basic_nack(tag, requeue=how == "requeue")

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def acknowledge_all_up_to(self, data: st.DataObject) -> None:
        last = self.tags[data.draw(st.sampled_from(sorted(self.model.held)))]
        self.worker.basic_ack(last, multiple=True)
        self.bench.run(0.1)
        bodies = sorted((each for each, tag in self.tags.items() if tag <= last), key=self.tags.__getitem__)
        # One step: all of them are gone before anybody gets another.
        for queue in dict.fromkeys(self.model.let_go(body)[0] for body in bodies):
            self.model.deliver(queue)
        self.tags = {body: tag for body, tag in self.tags.items() if tag > last}
        self.check_deliveries()

    @rule(queue=st.sampled_from(QUEUES))
    def purge(self, queue: str) -> None:
        assert self.publisher.queue_purge(queue) == len(self.model.ready[queue])
        self.model.ready[queue].clear()
        self.bench.run(0.1)

    @rule()
    def restart(self) -> None:
        self.bench.run()
        self.bench.restart()
        self.model.stop(in_good_order=True)
        self.open_channels()

    @rule(is_power=st.booleans())
    def crash(self, is_power: bool) -> None:
        self.bench.run()
        if is_power:
            self.bench.lose_power()
        else:
            self.bench.kill()
        self.bench.open()
        self.model.stop(in_good_order=False)
        self.open_channels()

    def check_deliveries(self) -> None:
        new = self.sink.deliveries[self.seen :]
        self.seen = len(self.sink.deliveries)
        expected, self.model.expected = self.model.expected, []
        found = [(each.consumer_tag, each.body) for each in new]
        assert found == expected
        for each in new:
            self.tags[each.body] = each.delivery_tag
            item = self.model.held[each.body][1]
            self.check_flag(item, redelivered=each.redelivered)
            count = headers_of(each.properties).get("x-delivery-count", 0)
            assert count == (item.count if self.model.held[each.body][0] == "limited" else 0)

    def check_flag(self, item: Item, *, redelivered: bool) -> None:
        assert redelivered or not item.must_be_flagged
        assert item.may_be_flagged or not redelivered

    @invariant()
    def counts_agree(self) -> None:
        self.check_deliveries()
        for info in self.bench.broker.queue_infos():
            assert info.ready_count == len(self.model.ready[info.name])
            assert info.ready_bytes == sum(len(each.body) for each in self.model.ready[info.name])
            held = [body for body, (queue, _, _) in self.model.held.items() if queue == info.name]
            assert info.unacked_count == len(held)


TestQueuesBesideTheModel = QueuesBesideTheModel.TestCase
TestQueuesBesideTheModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
