"""A broker that kills itself, again and again, at one failpoint, while two members share a group's records.

The members accept most records, reject some, release some, and go away without a word about others: with a
last request, or by hanging up. Their requests are on their way at the same time. After each kill they come
back with what they knew. Then

- every record that was produced is accepted or rejected in the end, and none is given up;
- what was accepted or rejected, and answered, never comes again, whatever happens;
- nobody is given what another member has, as long as that one has neither spoken of it nor gone;
- a delivery count goes up with each delivery, never falls below what it was when a release was answered, and
  counts no try that nobody can have made;
- the position is never behind what was answered, never past what nobody has settled, and never goes back;
- members that were told that they are members still are.

What a member said without being answered may count or not, but not come again once nothing is left to do.
"""

from __future__ import annotations

import errno
import io
import socket
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from enum import IntEnum
from itertools import count, groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

import kio.schema.describe_share_group_offsets.v1.request
import kio.schema.metadata.v12.request
import kio.schema.share_acknowledge.v2.request
import kio.schema.share_fetch.v2.request
import kio.schema.share_group_heartbeat.v1.request
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_reader, entity_writer

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig
from headrace.log.batch import decode_records, read_header
from headrace.testing.failpoints import failpoint, kill_at
from headrace.testing.process import BrokerProcess
from headrace.testing.waiting import eventually

GROUP: Final = "workers"
TOPIC: Final = "jobs"
STATE_TOPIC: Final = "__share_group_state"
PARTITIONS: Final = range(3)
RECORD_COUNT: Final = 300
"""So many records at least are settled in each case."""
ROUND_RECORD_COUNT: Final = 15
WAITING_RECORD_COUNT: Final = 90
"""The producer waits while so many are neither accepted nor rejected."""
CYCLE_ROUND_COUNT: Final = 9
"""After so many rounds, both members have gone and come back."""
DEADLINE_S: Final = 60.0
PATIENT: Final = BrokerConfig(
    listen=Address("127.0.0.1", 0), share_record_lock_duration_ms=600_000, share_delivery_count_limit=10
)
"""No lock ends by time, and no record is given up: all that happens is what members do."""
HASTY: Final = BrokerConfig(listen=Address("127.0.0.1", 0), share_record_lock_duration_ms=1_000)

heartbeats = cast("Any", kio.schema.share_group_heartbeat.v1.request)
fetches = cast("Any", kio.schema.share_fetch.v2.request)
acknowledgements = cast("Any", kio.schema.share_acknowledge.v2.request)
positions = cast("Any", kio.schema.describe_share_group_offsets.v1.request)
metadata = cast("Any", kio.schema.metadata.v12.request)


class Word(IntEnum):
    """What a member says of a record, with the numbers of the protocol."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class Place(NamedTuple):
    """Where a record lies."""

    partition: int
    offset: int


class Said(NamedTuple):
    """What is said of a record, and the how-manieth delivery that was."""

    word: Word
    delivery_count: int


class Ask(NamedTuple):
    """A request, and what it says of records. Without a request, the member hangs up."""

    request: Any
    said: Mapping[Place, Said] = {}


Script = Generator[Ask, Any, None]


def word_for(number: int, delivery_count: int) -> Word | None:
    """What becomes of a record; None for one that its first member never speaks of."""
    if number % 10 == 7:
        return Word.REJECT
    if number % 10 == 5 and delivery_count == 1:
        return None
    if number % 10 == 3 and delivery_count <= 2:
        return Word.RELEASE
    return Word.ACCEPT


class Ledger:
    """What was told and answered, and the judge of it."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []
        self.produced: dict[int, Place] = {}
        """Where records lie whose producer knows it."""
        self.given_counts: Counter[Place] = Counter()
        self._numbers: dict[Place, int] = {}
        self._settled: dict[Place, Word] = {}
        """What was accepted or rejected, and answered."""
        self._perhaps_settled: set[Place] = set()
        """What was accepted or rejected without an answer, and has not come again."""
        self._released: dict[Place, int] = {}
        """The delivery count of what was released, and answered."""
        self._on_their_way: dict[str, Mapping[Place, Said]] = {}
        self._fetching: set[str] = set()
        self._unheard_count = 0
        """How many fetches had no answer: each may have been a try of any record."""
        self._holders: dict[Place, str] = {}
        self._counts: dict[Place, int] = {}
        """The delivery counts that this broker process has told last."""
        self._starts: defaultdict[int, int] = defaultdict(lambda: -1)

    @property
    def settled_count(self) -> int:
        """How many records were accepted or rejected, as far as anybody knows."""
        return len(self._settled) + len(self._perhaps_settled)

    def sent(self, member: str, ask: Ask) -> None:
        """A member sends a request: whatever it gives back may be given out from now on."""
        self._on_their_way[member] = ask.said
        if isinstance(ask.request, fetches.ShareFetchRequest):
            self._fetching.add(member)
        for place, said in ask.said.items():
            if said.word is Word.RELEASE:
                self._holders.pop(place, None)

    def answered(self, member: str) -> None:
        """A member is answered, without an error."""
        self._fetching.discard(member)
        for place, said in self._on_their_way.pop(member, {}).items():
            if said.word is Word.RELEASE:
                self._released[place] = max(self._released.get(place, 0), said.delivery_count)
            else:
                self._settled[place] = said.word
                self._holders.pop(place, None)

    def hung_up(self, member: str) -> None:
        """A member is gone: what it has is for others."""
        self._holders = {place: holder for place, holder in self._holders.items() if holder != member}

    def given(self, member: str, place: Place, number: int, delivery_count: int) -> None:
        """A member is given a record."""
        name = f"{number} at {tuple(place)}, given to {member} with delivery count {delivery_count},"
        self.given_counts[place] += 1
        self.check(self._numbers.setdefault(place, number) == number, f"{name} is not what was there before")
        self.check(place not in self._settled, f"{name} was settled: {self._settled.get(place)!r}")
        self.check(place not in self._holders, f"{name} is held by {self._holders.get(place)}")
        floor = max(self._counts.get(place, 0), self._released.get(place, 0))
        self.check(delivery_count > floor, f"{name} had the count {floor} before")
        most = self.given_counts[place] + self._unheard_count
        self.check(delivery_count <= most, f"{name} can't have been given more often than {most} times")
        self._perhaps_settled.discard(place)
        self._holders[place] = member
        self._counts[place] = delivery_count

    def told(self, partition: int, start_offset: int) -> None:
        """Somebody is told where the group stands, while no member has a request on its way."""
        name = f"the position {start_offset} of partition {partition}"
        self.check(start_offset >= self._starts[partition], f"{name} was {self._starts[partition]} before")
        self._starts[partition] = start_offset
        answered = next(offset for offset in count() if Place(partition, offset) not in self._settled)
        self.check(max(start_offset, 0) >= answered, f"{name} is behind {answered}, and that was answered")
        before = (Place(partition, offset) for offset in range(start_offset))
        past = [place.offset for place in before if not self._may_be_settled(place)]
        self.check(not past, f"{name} is past {past}, which nobody has settled")

    def broker_restarted(self) -> None:
        """Nobody is answered any more, and nobody has anything."""
        for said in self._on_their_way.values():
            self._perhaps_settled |= {
                place for place, each in said.items() if each.word is not Word.RELEASE
            } - self._settled.keys()
        self._unheard_count += len(self._fetching)
        self._on_their_way.clear()
        self._fetching.clear()
        self._holders.clear()
        self._counts.clear()

    def lost(self) -> list[int]:
        """Records that were produced, and that nobody has settled."""
        return [number for number, place in self.produced.items() if not self._may_be_settled(place)]

    def words(self) -> set[Word]:
        """What was said and answered of any record."""
        return {*self._settled.values(), *([Word.RELEASE] if self._released else [])}

    def check(self, is_right: object, mistake: str) -> None:
        """Note a mistake, if it is one."""
        if not is_right:
            self.mistakes.append(mistake)

    def _may_be_settled(self, place: Place) -> bool:
        return place in self._settled or place in self._perhaps_settled


class Wire:
    """Frames, written and read with kio: an independent witness of what goes over the wire."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout=DEADLINE_S)
        self._response: Any = None

    def send(self, request: Any) -> None:
        """Send a request whose version has headers with tags."""
        key, version = request.__api_key__, request.__version__
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=0,  # type: ignore[arg-type]
            client_id="worker",
        )
        frame = io.BytesIO()
        entity_writer(RequestHeader)(frame, header)
        entity_writer(type(request))(frame, request)
        data = frame.getvalue()
        self._socket.sendall(struct.pack(">i", len(data)) + data)
        self._response = load_response_schema(key, version)

    def receive(self) -> Any:
        """Wait for the answer to what was sent."""
        (size_bytes,) = struct.unpack(">i", self._exactly(4))
        correlation_and_tags_bytes = 5
        return entity_reader(self._response)(self._exactly(size_bytes), correlation_and_tags_bytes)[0]

    def ask(self, request: Any) -> Any:
        """Send a request, and wait for its answer."""
        self.send(request)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            chunk = self._socket.recv(size_bytes - len(data))
            if not chunk:
                raise EOFError("the broker has closed the connection")
            data += chunk
        return bytes(data)


class Member:
    """A member as a script of what it asks, one thing at a time. It does no I/O.

    It fetches all partitions, whatever it is assigned, as the broker lets it: so both members are after the
    same records.
    """

    def __init__(self, name: str, ledger: Ledger, topic_id: UUID) -> None:
        self._name = name
        self._ledger = ledger
        self._topic_id = topic_id
        self._lives = count(1)
        self._be_born()

    def script(self) -> Script:
        """Come back as who one was, work, go, and begin again as somebody else."""
        self._session_epoch = 0
        self._held: dict[Place, tuple[int, int]] = {}
        while True:
            yield from self._heartbeat(self._epoch)
            yield from self._fetch()
            yield from self._acknowledge()
            yield from self._fetch()
            yield from self._fetch()
            yield from self._acknowledge()
            yield from self._fetch()
            if self._life % 2:
                yield from self._acknowledge(is_last=True)
                yield from self._leave()
            else:
                yield Ask(None)
                yield Ask(metadata_request())
            self._be_born()

    def _be_born(self) -> None:
        self._life = next(self._lives)
        self.member_id = f"{self._name}-{self._life}"
        self._epoch = 0
        self._session_epoch = 0
        self._held = {}

    def _heartbeat(self, epoch: int) -> Script:
        answer = yield Ask(heartbeat(self.member_id, epoch))
        self._check(answer.error_code, f"a heartbeat of epoch {epoch}")
        self._epoch = answer.member_epoch

    def _leave(self) -> Script:
        leaving = heartbeat(self.member_id, -1)
        # Nobody knows whether it is still a member until that is answered, so it won't say that it is.
        self._be_born()
        self._check((yield Ask(leaving)).error_code, "leaving")

    def _fetch(self) -> Script:
        said = self._words() if self._session_epoch else {}
        request = fetch(self.member_id, self._session_epoch, self._topic_id, said)
        answer = yield Ask(request, said)
        self._session_epoch += 1
        self._check(answer.error_code, "a fetch")
        self._note_answers(answer, said, lambda each: ErrorCode(each.acknowledge_error_code))
        for partition in _partitions(answer):
            self._check(partition.error_code, f"fetching partition {partition.partition_index}")
            self._take(partition)

    def _acknowledge(self, *, is_last: bool = False) -> Script:
        said = spoken = self._words()
        epoch = self._session_epoch
        if is_last:
            # What a member never spoke of is released with its last request.
            silent = {place: Said(Word.RELEASE, each) for place, (_, each) in self._held.items()}
            said, epoch = silent | said, -1
        answer = yield Ask(acknowledgement(self.member_id, epoch, self._topic_id, spoken), said)
        self._session_epoch += 1
        self._check(answer.error_code, "an acknowledgement")
        self._note_answers(answer, spoken, lambda each: each.error_code)

    def _words(self) -> dict[Place, Said]:
        """What there is to say of what it has, except of records of which it does not speak."""
        return {
            place: Said(word, delivery_count)
            for place, (number, delivery_count) in sorted(self._held.items())
            if (word := word_for(number, delivery_count)) is not None
        }

    def _note_answers(
        self, answer: Any, said: Mapping[Place, Said], error_of: Callable[[Any], ErrorCode]
    ) -> None:
        errors = {each.partition_index: error_of(each) for each in _partitions(answer)}
        verdicts = {place.partition: errors.get(place.partition) for place in said}
        for partition, error in verdicts.items():
            self._check(error, f"acknowledging records of partition {partition}")
        if all(error is ErrorCode.none for error in verdicts.values()):
            self._ledger.answered(self.member_id)
        for place in said:
            del self._held[place]

    def _take(self, partition: Any) -> None:
        numbers = dict(_records(partition.records or b""))
        for acquired in partition.acquired_records:
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                place = Place(partition.partition_index, offset)
                self._ledger.given(self.member_id, place, numbers[offset], acquired.delivery_count)
                self._held[place] = (numbers[offset], acquired.delivery_count)

    def _check(self, error: ErrorCode | None, what: str) -> None:
        self._ledger.check(error is ErrorCode.none, f"{what} by {self.member_id} was answered with {error!r}")


class Worker:
    """A member at work over a connection."""

    def __init__(self, member: Member, ledger: Ledger, address: Address) -> None:
        self._member = member
        self._ledger = ledger
        self._address = address
        self._script = member.script()
        self._next = next(self._script)
        self._is_waiting = False
        self._wire = Wire(address)

    def send(self) -> None:
        """Do what comes next."""
        if self._next.request is None:
            self._wire.close()
            self._ledger.hung_up(self._member.member_id)
            self._wire = Wire(self._address)
            self._next = next(self._script)
        self._ledger.sent(self._member.member_id, self._next)
        self._is_waiting = True
        self._wire.send(self._next.request)

    def receive(self) -> None:
        """Wait for the answer, and think of what comes next."""
        if self._is_waiting:
            answer = self._wire.receive()
            self._is_waiting = False
            self._next = self._script.send(answer)

    def close(self) -> None:
        self._wire.close()


class ShareGroupAtWork:
    """A broker that is killed now and then, a producer, and two members of a group."""

    def __init__(self, directory: Path) -> None:
        self.broker = BrokerProcess(directory, config=PATIENT)
        self.ledger = Ledger()
        self._made_count = 0
        self._workers: list[Worker] = []

    def set_up(self) -> None:
        """Make the topic and set the group's beginning, in a broker that lives."""
        self.broker.start()
        topic_id = prepare(self.broker.bootstrap)
        self._members = [Member(name, self.ledger, topic_id) for name in ("ann", "ben")]
        self._producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "linger.ms": 0,
                "batch.num.messages": 10,
                "log_level": 0,
            }
        )
        self.broker.stop()

    def work_until_killed_at(self, name: str, *, after: int) -> None:
        """Work with a broker that kills itself there, until it does."""
        self.broker.start(kill_at(name, after=after))
        with suppress(EOFError, OSError), self._at_work():
            while True:
                self._do_round()
        self.broker.await_killed()
        self.ledger.broker_restarted()

    def work_until_all_is_settled(self) -> None:
        """Work with a broker that lives, until the group has nothing left to do."""
        self.broker.start()
        with self._at_work():
            while len(self.ledger.produced) < RECORD_COUNT:
                self._do_round()
            assert self._producer.flush(DEADLINE_S) == 0
            eventually(self._has_nothing_left, lambda: f"settling {self.ledger.lost()[:10]}", pause_s=0)

    def look_for_more(self) -> int:
        """Let the members work for a while with the broker that runs; return how much they are given."""
        before = self.ledger.given_counts.total()
        with self._at_work():
            for _ in range(2 * CYCLE_ROUND_COUNT):
                self._do_round(is_producing=False)
        self.ledger.broker_restarted()
        return self.ledger.given_counts.total() - before

    def lags(self) -> list[int]:
        """How much is left to do in each partition. All that is told of positions is judged."""
        told = describe_positions(self.broker.address)
        for partition, (start_offset, _) in told.items():
            self.ledger.told(partition, start_offset)
        return [lag for _, lag in told.values()]

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Members that come back; when all is over, they hear what was answered before it was."""
        self.lags()
        try:
            self._workers = [Worker(each, self.ledger, self.broker.address) for each in self._members]
            yield
        finally:
            for worker in self._workers:
                with suppress(EOFError, OSError):
                    worker.receive()
                worker.close()
            self._workers = []

    def _do_round(self, *, is_producing: bool = True) -> None:
        if is_producing and self._made_count - self.ledger.settled_count < WAITING_RECORD_COUNT:
            for _ in range(ROUND_RECORD_COUNT):
                self._produce(self._made_count)
                self._made_count += 1
        self._producer.poll(0)
        for worker in self._workers:
            worker.send()
        for worker in self._workers:
            worker.receive()

    def _has_nothing_left(self) -> bool:
        self._do_round(is_producing=False)
        return self.lags() == [0] * len(PARTITIONS)

    def _produce(self, number: int) -> None:
        partition = number // 10 % len(PARTITIONS)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self.ledger.check(error is None, f"producing {number} failed: {error}")
            self.ledger.produced[number] = Place(partition, message.offset() or 0)

        self._producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=on_delivery)


# What is asked of the broker


def prepare(bootstrap: str) -> UUID:
    """Make the topic, and have the group begin at its beginning; return the topic's id."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(TOPIC, len(PARTITIONS), 1)]).values():
        made.result(DEADLINE_S)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource("GROUP", GROUP, incremental_configs=[earliest])
    for altered in admin.incremental_alter_configs([group]).values():
        altered.result(DEADLINE_S)
    found = topics_of(Address.parse(bootstrap))[TOPIC]
    assert found is not None
    return found


def topics_of(address: Address) -> dict[str, UUID | None]:
    """All topics with their ids."""
    answer = asked(address, metadata_request())
    return {topic.name: topic.topic_id for topic in answer.topics}


def describe_positions(address: Address) -> dict[int, tuple[int, int]]:
    """The start offset and the lag by partition."""
    topic = positions.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=tuple(PARTITIONS))
    group = positions.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=(topic,))
    answer = asked(address, positions.DescribeShareGroupOffsetsRequest(groups=(group,)))
    (described,) = answer.groups
    assert described.error_code is ErrorCode.none
    (found,) = described.topics
    return {each.partition_index: (each.start_offset, each.lag) for each in found.partitions}


def asked(address: Address, request: Any) -> Any:
    """The answer to one question, on a connection of its own."""
    wire = Wire(address)
    try:
        return wire.ask(request)
    finally:
        wire.close()


def metadata_request() -> Any:
    return metadata.MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


def heartbeat(member_id: str, epoch: int) -> Any:
    return heartbeats.ShareGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=(TOPIC,) if epoch == 0 else None,
    )


def fetch(
    member_id: str,
    epoch: int,
    topic_id: UUID,
    said: Mapping[Place, Said] | None = None,
    *,
    wait_ms: int = 10,
) -> Any:
    """Ask for whatever there is in any partition, and say something of what was given before."""
    batches = _batches(fetches, said or {})
    partitions = tuple(
        fetches.FetchPartition(partition_index=each, acknowledgement_batches=tuple(batches[each]))
        for each in PARTITIONS
        if batches[each] or epoch == 0
    )
    topic = fetches.FetchTopic(topic_id=topic_id, partitions=partitions)
    return fetches.ShareFetchRequest(
        group_id=GROUP,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_records=40,
        batch_size=40,
        topics=(topic,) if partitions else (),
        forgotten_topics_data=(),
    )


def acknowledgement(member_id: str, epoch: int, topic_id: UUID, said: Mapping[Place, Said]) -> Any:
    partitions = tuple(
        acknowledgements.AcknowledgePartition(partition_index=each, acknowledgement_batches=tuple(batches))
        for each, batches in _batches(acknowledgements, said).items()
    )
    topic = acknowledgements.AcknowledgeTopic(topic_id=topic_id, partitions=partitions)
    return acknowledgements.ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=member_id,
        share_session_epoch=epoch,
        topics=(topic,) if partitions else (),
    )


def _batches(schemas: ModuleType, said: Mapping[Place, Said]) -> defaultdict[int, list[Any]]:
    """Offsets next to each other go together, with one word for each."""
    batches: defaultdict[int, list[Any]] = defaultdict(list)
    in_order = enumerate(sorted(said.items()))
    for (partition, _), together in groupby(
        in_order, key=lambda each: (each[1][0].partition, each[1][0].offset - each[0])
    ):
        same = [each for _, each in together]
        batches[partition].append(
            schemas.AcknowledgementBatch(
                first_offset=same[0][0].offset,
                last_offset=same[-1][0].offset,
                acknowledge_types=tuple(int(each.word) for _, each in same),
            )
        )
    return batches


def _partitions(answer: Any) -> Iterable[Any]:
    return [partition for topic in answer.responses for partition in topic.partitions]


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Offsets and numbers."""
    while data:
        size_bytes = read_header(data).size_bytes
        for record in decode_records(data[:size_bytes]):
            yield record.offset, int(record.value or b"")
        data = data[size_bytes:]


def produce(bootstrap: str, record_count: int) -> set[Place]:
    """Write records to the first partition; return where they lie."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    for number in range(record_count):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    return {Place(0, offset) for offset in range(record_count)}


def join(wire: Wire, member_id: str, topic_id: UUID) -> dict[Place, int]:
    """Become a member, and return the delivery counts of what it is given first."""
    assert wire.ask(heartbeat(member_id, 0)).error_code is ErrorCode.none
    return given(wire.ask(fetch(member_id, 0, topic_id)))


def given(answer: Any) -> dict[Place, int]:
    """The delivery counts of what a fetch was answered with."""
    return {
        Place(partition.partition_index, offset): acquired.delivery_count
        for partition in _partitions(answer)
        for acquired in partition.acquired_records
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    }


# The broker dies


@pytest.fixture
def work(tmp_path: Path) -> Iterator[ShareGroupAtWork]:
    work = ShareGroupAtWork(tmp_path / "data")
    work.set_up()
    yield work
    work.broker.stop()


def check_that_all_is_settled_for_good(work: ShareGroupAtWork) -> None:
    work.work_until_all_is_settled()
    assert work.ledger.mistakes == []
    assert work.ledger.lost() == []
    assert len(work.ledger.produced) >= RECORD_COUNT
    assert work.ledger.words() == set(Word)
    for end in (work.broker.kill, work.broker.stop):
        end()
        work.ledger.broker_restarted()
        work.broker.start()
        given_count = work.look_for_more()
        assert work.ledger.mistakes == []
        assert given_count == 0
        assert work.lags() == [0] * len(PARTITIONS)


@pytest.mark.parametrize(
    ("name", "afters"),
    [
        ("kafka.share.append", (0, 1, 2, 7, 18)),
        ("kafka.share.durable", (0, 1, 2, 9, 30)),
        ("kafka.answered", (1, 4, 9, 20, 45)),
        ("kafka.offsets.append", (0, 1, 2, 5)),
        ("log.append", (0, 5, 13, 40)),
        ("log.append.half", (0, 5, 13, 40)),
        ("log.appended", (0, 5, 13, 40)),
        ("log.sync", (0, 5, 13, 40)),
        ("log.synced", (0, 5, 13, 40)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_answered_outlives_a_broker_that_dies_in_the_midst_of_it(
    work: ShareGroupAtWork, name: str, afters: tuple[int, ...]
) -> None:
    for after in afters:
        work.work_until_killed_at(name, after=after)
    check_that_all_is_settled_for_good(work)


@pytest.mark.parametrize(
    ("name", "afters", "is_there"),
    [
        # The group's own topic is made before, when the first member joins.
        ("store.topic.create", (0, 1, 0), False),
        ("store.topic.created", (0, 0), True),
    ],
    ids=["create", "created"],
)
def test_a_group_begins_where_it_should_although_the_broker_dies_as_the_topic_of_positions_is_made(
    work: ShareGroupAtWork, name: str, afters: tuple[int, ...], is_there: bool
) -> None:
    for after in afters:
        work.work_until_killed_at(name, after=after)
    work.broker.start()
    topics = topics_of(work.broker.address)
    assert "__consumer_offsets" in topics
    assert (STATE_TOPIC in topics) == is_there
    assert describe_positions(work.broker.address) == dict.fromkeys(PARTITIONS, (-1, -1))
    work.broker.stop()
    check_that_all_is_settled_for_good(work)


def test_records_whose_lock_ended_are_for_others_whether_the_broker_has_written_that_or_not(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", config=HASTY) as broker:
        topic_id = prepare(broker.bootstrap)
        places = produce(broker.bootstrap, 3)
        broker.stop()
        # What is written first is where the group begins; next is the end of the lock.
        broker.start(kill_at("kafka.share.append", after=1))
        with closing(Wire(broker.address)) as ann:
            assert join(ann, "ann", topic_id) == dict.fromkeys(places, 1)
            broker.await_killed()
        broker.start()
        with closing(Wire(broker.address)) as ben, closing(Wire(broker.address)) as cid:
            assert join(ben, "ben", topic_id).keys() == places
            # Whoever waits is given them when the lock ends, and is answered when that is durable.
            waiting = fetch("cid", 0, topic_id, wait_ms=60_000)
            assert cid.ask(heartbeat("cid", 0)).error_code is ErrorCode.none
            counts = given(cid.ask(waiting))
            assert counts.keys() == places
            broker.kill()
        broker.start()
        with closing(Wire(broker.address)) as dan:
            again = join(dan, "dan", topic_id)
        assert again.keys() == places
        assert all(again[place] >= counts[place] for place in places)


# The disk fails


@pytest.mark.parametrize("place", ["log.append", "log.sync"])
def test_what_the_disk_does_not_take_is_not_acknowledged_and_comes_again(tmp_path: Path, place: str) -> None:
    def said(word: Word, *offsets: int) -> dict[Place, Said]:
        return {Place(0, offset): Said(word, 1) for offset in offsets}

    def verdicts(answer: Any) -> dict[int, ErrorCode]:
        return {each.partition_index: each.error_code for each in _partitions(answer)}

    refused = {0: ErrorCode.kafka_storage_error}
    with Broker(tmp_path / "data", config=PATIENT) as broker:
        topic_id = prepare(broker.bootstrap)
        places = produce(broker.bootstrap, 10)
        with closing(Wire(Address.parse(broker.bootstrap))) as ann:
            assert join(ann, "ann", topic_id).keys() == places
            accepted = ann.ask(acknowledgement("ann", 1, topic_id, said(Word.ACCEPT, 0, 4)))
            assert verdicts(accepted) == {0: ErrorCode.none}
            rest = said(Word.ACCEPT, 1) | said(Word.REJECT, 2) | said(Word.RELEASE, 3)
            with failpoint(place, error=errno.EIO):
                assert verdicts(ann.ask(acknowledgement("ann", 2, topic_id, rest))) == refused
            # A failed sync is never tried again, nor is anything written behind a failed write.
            late = acknowledgement("ann", 3, topic_id, said(Word.ACCEPT, 5))
            assert verdicts(ann.ask(late)) == refused
            later = ann.ask(fetch("ann", 4, topic_id, said(Word.ACCEPT, 6)))
            told = {each.partition_index: each.acknowledge_error_code for each in _partitions(later)}
            assert told[0] == refused[0].value
            last = ann.ask(acknowledgement("ann", -1, topic_id, said(Word.REJECT, 7)))
            assert verdicts(last) == refused
    with (
        Broker(tmp_path / "data", config=PATIENT) as broker,
        closing(Wire(Address.parse(broker.bootstrap))) as ben,
    ):
        again = {each.offset for each in join(ben, "ben", topic_id)}
    # What was being synced may be on the disk, though nobody can say so; nothing else may.
    perhaps_settled = {1, 2} if place == "log.sync" else set()
    assert again | perhaps_settled == {1, 2, 3, 5, 6, 7, 8, 9}


@pytest.mark.parametrize("place", ["log.append", "log.sync"])
def test_no_record_is_given_out_while_the_disk_does_not_take_where_the_group_begins(
    tmp_path: Path, place: str
) -> None:
    with Broker(tmp_path / "data", config=PATIENT) as broker:
        topic_id = prepare(broker.bootstrap)
        places = produce(broker.bootstrap, 3)
        with closing(Wire(Address.parse(broker.bootstrap))) as ann:
            assert ann.ask(heartbeat("ann", 0)).error_code is ErrorCode.none
            # The topic of positions is there before the disk fails: the first request makes it.
            unknown = ann.ask(acknowledgement("nobody", 1, topic_id, {}))
            assert unknown.error_code is ErrorCode.share_session_not_found
            with failpoint(place, error=errno.EIO):
                answer = ann.ask(fetch("ann", 0, topic_id))
            assert {each.error_code for each in _partitions(answer)} == {ErrorCode.kafka_storage_error}
            assert given(answer) == {}
    with (
        Broker(tmp_path / "data", config=PATIENT) as broker,
        closing(Wire(Address.parse(broker.bootstrap))) as ben,
    ):
        assert join(ben, "ben", topic_id) == dict.fromkeys(places, 1)
