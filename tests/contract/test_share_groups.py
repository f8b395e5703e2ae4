"""Share groups: consumers share partitions record by record, and answer for each that they are given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.waiting import eventually
from kafka_clients.interface import (
    Admin,
    Answer,
    Client,
    ClientError,
    Consumer,
    NewRecord,
    Record,
    ShareConsumer,
)

HERE = Path(__file__).parent
MEMBER = """
import sys
from kafka_clients.confluent import ConfluentClient
bootstrap, group, topic = sys.argv[1:]
consumer = ConfluentClient(bootstrap).share_consumer(group, topic)
while not (records := consumer.poll()):
    pass
print(len(records), flush=True)
sys.stdin.read()
"""
"""A member in a process of its own that takes records and says nothing about them until it is killed."""

DELIVERY_COUNT_LIMIT = 5
PATIENT_MS = 60_000
"""Nobody's lock on a record ends while a test runs that isn't about that."""
AT_ONCE_S = 30.0
"""Well before a patient lock ends."""

pytestmark = pytest.mark.clients("confluent", "java-4.3")


@pytest.fixture
def configure(group: str, administrator: Admin) -> Callable[..., None]:
    """Set settings of the group, named with underscores for dots, without their `share.`."""

    def configure(**settings: str | int) -> None:
        changes = {f"share.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
        administrator.alter_config("GROUP", group, changes)
        eventually(
            lambda: (
                {name: administrator.config("GROUP", group)[name][0] for name in changes}.items()
                == changes.items()
            )
        )

    return configure


@pytest.fixture
def share_group(group: str, configure: Callable[..., None]) -> str:
    """The name of a share group that begins at the beginning and whose locks outlast a test."""
    configure(auto_offset_reset="earliest", record_lock_duration_ms=PATIENT_MS)
    return group


@pytest.fixture
def join(client: Client, share_group: str) -> Callable[..., ShareConsumer]:
    """Join the share group."""
    return lambda *topics, **settings: client.share_consumer(share_group, *topics, **settings)


def values(records: list[Record]) -> list[bytes]:
    return sorted(record.value or b"" for record in records)


def read_all(members: list[ShareConsumer], wanted: set[bytes]) -> list[list[Record]]:
    """Let members poll in turn and accept until everything that is wanted was read."""
    found: list[list[Record]] = [[] for _ in members]

    def has_all() -> bool:
        for member, records in zip(members, found, strict=True):
            polled = member.poll()
            member.answer(polled, "accept")
            records.extend(polled)
        return {record.value or b"" for records in found for record in records} >= wanted

    eventually(has_all, lambda: f"everything, of which {[len(records) for records in found]} came,")
    return found


def test_a_group_begins_at_the_end_by_default(
    client: Client, new_topic: Callable[..., str], group: str, configure: Callable[..., None]
) -> None:
    topic = new_topic()
    configure(record_lock_duration_ms=PATIENT_MS)
    client.produce(topic, b"before")
    member = client.share_consumer(group, topic)
    number = 0

    def reads_something() -> list[Record]:
        # Nothing tells when the group has found the end: what came before that is not for it.
        nonlocal number
        number += 1
        client.produce(topic, str(number).encode())
        return member.poll()

    found = eventually(reads_something)
    member.answer(found, "accept")
    assert b"before" not in values(found)


def test_a_group_begins_at_the_beginning_where_that_is_its_setting(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"first", b"second")
    records = join(topic).read(2)
    assert [record.value for record in records] == [b"first", b"second"]
    assert [record.offset for record in records] == [0, 1]
    assert [record.delivery_count for record in records] == [1, 1]


def test_members_share_one_partition_and_none_gets_what_another_accepted(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    members = [join(topic, max_poll_records=5), join(topic, max_poll_records=5)]
    both_read = False
    produced = 0
    found: list[list[Record]] = [[], []]
    while not both_read:
        batch = [str(number).encode() for number in range(produced, produced + 100)]
        produced += 100
        for value in batch:
            client.produce(topic, value)
        for records, more in zip(found, read_all(members, set(batch)), strict=True):
            records.extend(more)
        both_read = all(found)
        assert both_read or produced < 1_000, "one of the two never got anything"
    together = [*found[0], *found[1]]
    assert values(together) == sorted(str(number).encode() for number in range(produced))
    assert {record.delivery_count for record in together} == {1}


def test_one_member_reads_many_partitions(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic(20)
    for partition in range(20):
        client.produce(topic, str(partition).encode(), partition=partition)
    assert values(join(topic).read(20)) == sorted(str(partition).encode() for partition in range(20))


def test_members_read_every_partition_between_them(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic, other = new_topic(6), new_topic(3)
    members = [join(topic, other) for _ in range(3)]
    wanted = set()
    for name, count in ((topic, 6), (other, 3)):
        for partition in range(count):
            value = f"{name}-{partition}".encode()
            client.produce(name, value, partition=partition)
            wanted.add(value)
    found = read_all(members, wanted)
    assert values([record for records in found for record in records]) == sorted(wanted)


def test_what_was_accepted_does_not_come_back_to_those_who_come_later(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"first", b"second")
    member = join(topic)
    member.read(2)
    member.close()
    client.produce(topic, b"third")
    assert values(join(topic).read(1)) == [b"third"]


def test_a_member_that_asks_for_more_has_accepted_what_it_had(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"first")
    member = join(topic, share_acknowledgement_mode="implicit")
    assert values(eventually(member.poll)) == [b"first"]
    client.produce(topic, b"second")
    assert values(eventually(member.poll)) == [b"second"]
    assert member.commit() == {(topic, 0): None}
    member.close()
    client.produce(topic, b"third")
    assert values(join(topic).read(1)) == [b"third"]


def test_what_was_released_comes_again_with_a_higher_count(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"again")
    member, other = join(topic), join(topic)
    (first,) = member.read(1, "release")
    (second,) = other.read(1, "release")
    (third,) = member.read(1)
    assert [record.delivery_count for record in (first, second, third)] == [1, 2, 3]
    assert [record.offset for record in (first, second, third)] == [0, 0, 0]


def test_what_was_rejected_does_not_come_again(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"poison")
    member = join(topic)
    assert values(member.read(1, "reject")) == [b"poison"]
    client.produce(topic, b"good")
    assert values(member.read(1)) == [b"good"]


def test_each_record_has_its_own_answer(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, *[str(number).encode() for number in range(9)])
    member = join(topic)
    answers: tuple[Answer, ...] = ("accept", "release", "reject")
    answered: list[Record] = []

    def has_answered_all() -> bool:
        records = [record for record in member.poll() if record.delivery_count == 1]
        for record in records:
            member.acknowledge(record, answers[record.offset % 3])
        answered.extend(records)
        return len(answered) == 9

    eventually(has_answered_all)
    assert member.commit() == {(topic, 0): None}
    again = member.read(3)
    assert sorted((record.offset, record.delivery_count) for record in again) == [(1, 2), (4, 2), (7, 2)]
    client.produce(topic, b"end")
    assert values(member.read(1)) == [b"end"]


def test_a_record_that_nobody_answers_for_comes_back_when_its_lock_ends(
    client: Client,
    new_topic: Callable[..., str],
    join: Callable[..., ShareConsumer],
    configure: Callable[..., None],
) -> None:
    topic = new_topic()
    configure(record_lock_duration_ms=1_000)
    client.produce(topic, b"slow")
    slow, other = join(topic), join(topic)
    (record,) = slow.take(1)
    configure(record_lock_duration_ms=PATIENT_MS)
    (again,) = other.take(1)
    assert (again.offset, again.delivery_count) == (record.offset, 2)
    slow.acknowledge(record, "accept")
    assert slow.commit() == {(topic, 0): "INVALID_RECORD_STATE"}
    other.answer([again], "accept")


def test_an_answer_that_comes_too_late_is_refused_even_when_nobody_else_has_the_record(
    client: Client,
    new_topic: Callable[..., str],
    join: Callable[..., ShareConsumer],
    configure: Callable[..., None],
) -> None:
    topic = new_topic()
    configure(record_lock_duration_ms=1_000)
    client.produce(topic, b"slow")
    slow, other = join(topic), join(topic)
    (record,) = slow.take(1)
    other.read(1, "release")
    slow.acknowledge(record, "accept")
    assert slow.commit() == {(topic, 0): "INVALID_RECORD_STATE"}
    assert other.read(1)[0].delivery_count == 3


def test_a_record_is_given_out_so_often_and_no_more(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"poison")
    member = join(topic)
    counts = [member.read(1, "release")[0].delivery_count for _ in range(DELIVERY_COUNT_LIMIT)]
    assert counts == [1, 2, 3, 4, 5]
    client.produce(topic, b"good")
    assert values(member.read(1)) == [b"good"]


def test_each_record_of_a_batch_is_given_out_so_often(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    """The last deliveries come in smaller parts, so that one bad record doesn't spoil it for the others."""
    topic = new_topic()
    client.produce(topic, *[str(number).encode() for number in range(10)])
    records = join(topic).read(10 * DELIVERY_COUNT_LIMIT, "release")
    assert sorted((record.offset, record.delivery_count or 0) for record in records) == [
        (offset, count) for offset in range(10) for count in range(1, DELIVERY_COUNT_LIMIT + 1)
    ]


def test_a_group_may_give_records_out_less_often(
    client: Client,
    new_topic: Callable[..., str],
    join: Callable[..., ShareConsumer],
    configure: Callable[..., None],
) -> None:
    topic = new_topic()
    configure(delivery_count_limit=2)
    client.produce(topic, b"poison")
    member = join(topic)
    assert [member.read(1, "release")[0].delivery_count for _ in range(2)] == [1, 2]
    client.produce(topic, b"good")
    assert values(member.read(1)) == [b"good"]


def test_a_member_that_closes_gives_back_what_it_did_not_answer_for(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"left")
    leaver = join(topic)
    leaver.take(1)
    leaver.close()
    heir = join(topic)
    (record,) = eventually(heir.poll, within_s=AT_ONCE_S)
    assert (record.value, record.delivery_count) == (b"left", 2)
    heir.answer([record], "accept")


@pytest.fixture
def start_member(server: Any) -> Iterator[Callable[[str, str], subprocess.Popen[str]]]:
    """Start a member in a process of its own, and wait until it has taken records."""
    started: list[subprocess.Popen[str]] = []
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

    def start(group: str, topic: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", MEMBER, server.bootstrap, group, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        started.append(process)
        assert process.stdout is not None
        assert int(process.stdout.readline()) >= 1
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_what_a_killed_member_had_comes_back(
    client: Client,
    new_topic: Callable[..., str],
    share_group: str,
    join: Callable[..., ShareConsumer],
    start_member: Callable[[str, str], subprocess.Popen[str]],
) -> None:
    topic = new_topic()
    client.produce(topic, b"left")
    killed = start_member(share_group, topic)
    killed.kill()
    (record,) = join(topic).read(1)
    assert (record.value, record.delivery_count) == (b"left", 2)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_a_group_sees_aborted_records_only_when_it_reads_uncommitted(
    client: Client,
    new_topic: Callable[..., str],
    join: Callable[..., ShareConsumer],
    configure: Callable[..., None],
    transactional_id: str,
    level: str,
) -> None:
    topic = new_topic()
    configure(isolation_level=level)
    producer = client.producer(transactional_id=transactional_id)
    producer.init_transactions()
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
        (b"kept too", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value)
        end()
    wanted = [b"kept", b"aborted", b"kept too"] if level == "read_uncommitted" else [b"kept", b"kept too"]
    member = join(topic)
    assert [record.value for record in member.read(len(wanted))] == wanted
    client.produce(topic, b"end")
    assert values(member.read(1)) == [b"end"]


def test_a_group_that_reads_committed_waits_for_the_end_of_a_transaction(
    client: Client,
    new_topic: Callable[..., str],
    join: Callable[..., ShareConsumer],
    configure: Callable[..., None],
    transactional_id: str,
) -> None:
    topic = new_topic()
    configure(isolation_level="read_committed")
    client.produce(topic, b"before")
    producer = client.producer(transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open")
    client.produce(topic, b"behind")
    member = join(topic)
    assert values(member.read(1)) == [b"before"]
    assert member.poll(0.5) == []
    producer.commit_transaction()
    assert values(member.read(2)) == [b"behind", b"open"]


@pytest.mark.clients("java-4.3")
def test_a_poll_brings_no_more_records_than_asked_for(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    """librdkafka has no way to ask for so many records and no more."""
    topic = new_topic()
    client.produce(topic, *[str(number).encode() for number in range(10)])
    member = join(topic, max_poll_records=3, share_acquire_mode="record_limit")
    polls: list[int] = []

    def has_all() -> bool:
        records = member.poll()
        member.answer(records, "accept")
        polls.append(len(records))
        return sum(polls) == 10

    eventually(has_all, lambda: f"ten records, of which {polls} came,")
    assert max(polls) <= 3


def test_records_that_were_deleted_are_skipped(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer], administrator: Admin
) -> None:
    topic = new_topic()
    client.produce(topic, b"gone")
    client.produce(topic, b"kept")
    administrator.delete_records((topic, 0), 1)
    (record,) = join(topic).read(1)
    assert (record.offset, record.value) == (1, b"kept")


def test_gaps_that_compaction_leaves_are_no_obstacle(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_ms="50")
    producer = client.producer()

    def send(key: bytes, value: bytes) -> None:
        producer.send([NewRecord(topic=topic, key=key, value=value, partition=0)])
        producer.flush()

    for value in (b"old", b"old", b"new"):
        send(b"key", value)
    send(b"other", b"only")
    plain = client.reader((topic, 0))
    plain.read(1)

    def is_compacted() -> bool:
        # Only older segments are cleaned, and a segment is closed when a record comes after its time.
        send(b"next", b"next")
        plain.seek((topic, 0), 0)
        return plain.read(1)[0].value == b"new"

    eventually(is_compacted)
    send(b"end", b"end")
    member = join(topic)
    found: list[bytes | None] = []

    def is_at_the_end() -> bool:
        records = member.poll()
        member.answer(records, "accept")
        found.extend(record.value for record in records)
        return found[-1:] == [b"end"]

    eventually(is_at_the_end)
    assert [value for value in found if value != b"next"] == [b"new", b"only", b"end"]
    send(b"later", b"later")
    assert values(member.read(1)) == [b"later"]


def test_a_group_reads_a_topic_that_grows(
    client: Client, new_topic: Callable[..., str], join: Callable[..., ShareConsumer], administrator: Admin
) -> None:
    topic = new_topic()
    client.produce(topic, b"old")
    member = join(topic)
    member.read(1)
    administrator.create_partitions(topic, 2)
    eventually(lambda: administrator.partition_count(topic) == 2)
    client.produce(topic, b"new", partition=1)
    assert [(record.partition, record.value) for record in member.read(1)] == [(1, b"new")]


@pytest.fixture
def java_admin(open_client: Callable[[str], Client]) -> Admin:
    """Of the clients here, only Java's knows how to administer share groups."""
    return open_client("java-4.3").admin


@pytest.mark.java
def test_a_group_is_described_with_its_members(
    client: Client,
    new_topic: Callable[..., str],
    share_group: str,
    join: Callable[..., ShareConsumer],
    java_admin: Admin,
) -> None:
    topic = new_topic(2)
    client.produce(topic, b"first")
    member = join(topic, client_id="reader")
    member.read(1)
    found = java_admin.describe_share_group(share_group)
    assert found.state == "Stable"
    assert [(each.client_id, each.partitions) for each in found.members] == [
        ("reader", {(topic, 0), (topic, 1)})
    ]
    assert java_admin.group_kinds()[share_group] == "Share"
    member.close()
    eventually(lambda: java_admin.describe_share_group(share_group).state == "Empty")
    assert java_admin.describe_share_group(share_group).members == []


@pytest.mark.java
def test_a_groups_offsets_tell_where_it_is_and_what_is_left(
    client: Client,
    new_topic: Callable[..., str],
    share_group: str,
    join: Callable[..., ShareConsumer],
    java_admin: Admin,
) -> None:
    topic = new_topic()
    client.produce(topic, b"first")
    member = join(topic)
    member.read(1)
    # The offset may stay behind; what is left is counted.
    eventually(lambda: java_admin.share_group_offsets(share_group)[topic, 0][1] == 0)
    client.produce(topic, b"second", b"third")
    eventually(lambda: java_admin.share_group_offsets(share_group)[topic, 0][1] == 2)
    member.read(2)
    eventually(lambda: java_admin.share_group_offsets(share_group)[topic, 0][1] == 0)


@pytest.mark.java
def test_an_empty_groups_offsets_can_be_altered_and_deleted(
    client: Client,
    new_topic: Callable[..., str],
    share_group: str,
    join: Callable[..., ShareConsumer],
    java_admin: Admin,
) -> None:
    topic = new_topic()
    client.produce(topic, *[str(number).encode() for number in range(5)])
    member = join(topic)
    member.read(5)
    refusals: list[Callable[[], None]] = [
        lambda: java_admin.alter_share_group_offsets(share_group, {(topic, 0): 3}),
        lambda: java_admin.delete_share_group_offsets(share_group, [topic]),
        lambda: java_admin.delete_share_group(share_group),
    ]
    for refused in refusals:
        with pytest.raises(ClientError, match="NON_EMPTY_GROUP"):
            refused()
    leave(member, java_admin, share_group)
    java_admin.alter_share_group_offsets(share_group, {(topic, 0): 3})
    assert java_admin.share_group_offsets(share_group)[topic, 0] == (3, 2)
    member = join(topic)
    assert [record.offset for record in member.read(2)] == [3, 4]
    leave(member, java_admin, share_group)
    java_admin.delete_share_group_offsets(share_group, [topic])
    assert java_admin.share_group_offsets(share_group) == {}
    member = join(topic)
    assert [record.offset for record in member.read(5)] == [0, 1, 2, 3, 4]


def leave(member: ShareConsumer, admin: Admin, group: str) -> None:
    member.close()
    eventually(lambda: admin.describe_share_group(group).state == "Empty")


@pytest.mark.java
def test_an_empty_group_can_be_deleted_and_begins_anew(
    client: Client,
    new_topic: Callable[..., str],
    share_group: str,
    join: Callable[..., ShareConsumer],
    java_admin: Admin,
) -> None:
    topic = new_topic()
    client.produce(topic, b"first")
    member = join(topic)
    member.read(1)
    leave(member, java_admin, share_group)
    java_admin.delete_share_group(share_group)
    assert share_group not in java_admin.group_kinds()
    assert values(join(topic).read(1)) == [b"first"]


@pytest.mark.clients("java-4.3")
def test_a_group_that_does_not_exist_is_refused_by_its_name(
    client: Client, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic()
    refusals: list[Callable[[], Any]] = [
        lambda: client.admin.describe_share_group(group),
        lambda: client.admin.delete_share_group(group),
        lambda: client.admin.delete_share_group_offsets(group, [topic]),
    ]
    for refused in refusals:
        with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
            refused()
    assert client.admin.share_group_offsets(group) == {}


@pytest.mark.clients("java-4.3")
def test_altering_offsets_begins_a_group_before_its_first_member(
    client: Client, new_topic: Callable[..., str], share_group: str, join: Callable[..., ShareConsumer]
) -> None:
    topic = new_topic()
    client.produce(topic, b"first", b"second")
    client.admin.alter_share_group_offsets(share_group, {(topic, 0): 1})
    assert client.admin.describe_share_group(share_group).state == "Empty"
    assert values(join(topic).read(1)) == [b"second"]


@pytest.mark.clients("java-4.3")
def test_offsets_of_a_topic_that_does_not_exist_are_refused(
    client: Client, new_topic: Callable[..., str], share_group: str
) -> None:
    topic = new_topic()
    client.admin.alter_share_group_offsets(share_group, {(topic, 0): 0})
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.admin.alter_share_group_offsets(share_group, {(f"{topic}-none", 0): 0})
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.admin.delete_share_group_offsets(share_group, [f"{topic}-none"])


def read_by_group(client: Client, topic: str, group: str, **settings: str) -> Consumer:
    member = client.consumer(group_id=group, **settings)
    member.subscribe([topic])
    member.read(1)
    return member


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.clients("java-4.3")
def test_a_consumer_group_is_no_share_group(
    client: Client, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic = new_topic()
    client.produce(topic, b"first")
    read_by_group(client, topic, group, group_protocol=protocol)
    with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
        client.admin.describe_share_group(group)
    with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
        client.admin.alter_share_group_offsets(group, {(topic, 0): 0})
    member = client.share_consumer(group, topic)
    with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
        eventually(member.poll)


@pytest.mark.parametrize(
    ("protocol", "error"), [("classic", "INCONSISTENT_GROUP_PROTOCOL"), ("consumer", "GROUP_ID_NOT_FOUND")]
)
@pytest.mark.clients("java-4.3")
def test_a_share_group_is_no_consumer_group(
    client: Client,
    new_topic: Callable[..., str],
    share_group: str,
    join: Callable[..., ShareConsumer],
    protocol: str,
    error: str,
) -> None:
    topic = new_topic()
    client.produce(topic, b"first")
    join(topic).read(1)
    with pytest.raises(ClientError, match=error):
        read_by_group(client, topic, share_group, group_protocol=protocol)
    with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
        client.admin.describe_group(share_group)
