"""Transactions: all or nothing, offsets included, for readers who ask for it; one writer of each name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.testing.waiting import eventually
from kafka_clients.interface import Client, ClientError, NewRecord, Producer

FENCED = r"FENCED|INVALID_PRODUCER_EPOCH|ProducerFenced|_STATE|_FATAL"
"""How clients call it that another writer of the same transactional id has come."""


@pytest.fixture
def writer(client: Client, transactional_id: str) -> Producer:
    """A transactional producer that may begin."""
    producer = client.producer(transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def write(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Write within the transaction that is open, and wait until the broker has it."""
    producer.send(NewRecord(topic=topic, value=value, partition=partition) for value in values)
    producer.flush()


def write_and_commit(producer: Producer, topic: str, *values: bytes) -> None:
    """End the transaction that is open with these."""
    write(producer, topic, *values)
    producer.commit_transaction()


def test_what_is_committed_is_read_in_every_partition(
    client: Client, writer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    for number in range(3):
        writer.begin_transaction()
        for partition in range(2):
            write(writer, topic, str(number).encode(), partition=partition)
        writer.commit_transaction()
    for partition in range(2):
        reader = client.reader((topic, partition), isolation_level="read_committed")
        assert reader.values(3) == [b"0", b"1", b"2"]


def test_what_is_aborted_is_read_only_by_those_who_read_everything(
    client: Client, writer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer.begin_transaction()
    write(writer, topic, b"aborted", b"as well")
    writer.abort_transaction()
    writer.begin_transaction()
    write(writer, topic, b"committed")
    writer.commit_transaction()
    assert client.reader((topic, 0), isolation_level="read_committed").values(1) == [b"committed"]
    everything = client.reader((topic, 0), isolation_level="read_uncommitted").values(3)
    assert everything == [b"aborted", b"as well", b"committed"]


def test_markers_take_offsets_and_an_abort_leaves_a_gap(
    client: Client, writer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer.begin_transaction()
    write(writer, topic, b"0")
    writer.commit_transaction()
    writer.begin_transaction()
    write(writer, topic, b"2")
    writer.abort_transaction()
    writer.begin_transaction()
    write(writer, topic, b"4")
    writer.commit_transaction()
    reader = client.reader((topic, 0), isolation_level="read_committed")
    assert [record.offset for record in reader.read(2)] == [0, 4]
    assert reader.end((topic, 0)) == 6


def test_an_open_transaction_holds_up_readers_of_what_is_committed_and_no_others(
    client: Client, writer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    client.produce(topic, b"before")
    writer.begin_transaction()
    write(writer, topic, b"open")
    client.produce(topic, b"after")
    committed = client.reader((topic, 0), isolation_level="read_committed")
    assert client.reader((topic, 0)).values(3) == [b"before", b"open", b"after"]
    assert committed.values(1) == [b"before"]
    assert committed.poll(0.2) == []
    writer.commit_transaction()
    assert committed.values(2) == [b"open", b"after"]


@pytest.mark.clients("kafka-python", "aiokafka", "java-4.3", "java-3.9")
def test_the_end_for_readers_of_what_is_committed_is_the_last_stable_offset(
    client: Client, writer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    client.produce(topic, b"before")
    writer.begin_transaction()
    write(writer, topic, b"open", b"open")
    reader = client.reader((topic, 0), isolation_level="read_committed")
    assert reader.end((topic, 0)) == 1
    assert client.reader((topic, 0)).end((topic, 0)) == 3
    writer.abort_transaction()
    eventually(lambda: reader.end((topic, 0)) == 4)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    client: Client,
    writer: Producer,
    new_topic: Callable[..., str],
    group: str,
    outcome: str,
) -> None:
    source, target = new_topic(), new_topic()
    client.produce(source, b"a", b"b", b"c")
    consumer = client.consumer(group_id=group)
    consumer.subscribe([source])
    taken = consumer.read(3)
    writer.begin_transaction()
    write(writer, target, *(record.value or b"" for record in taken))
    writer.send_offsets({(source, 0): 3}, consumer)
    if outcome == "commit":
        writer.commit_transaction()
        # An older client is told of the commit before it is complete everywhere.
        eventually(lambda: consumer.committed((source, 0)) == 3)
        assert client.reader((target, 0), isolation_level="read_committed").values(3) == [b"a", b"b", b"c"]
    else:
        writer.abort_transaction()
        assert consumer.committed((source, 0)) is None


def test_a_new_writer_of_the_same_name_fences_the_old_one_and_ends_its_transaction(
    client: Client, writer: Producer, transactional_id: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer.begin_transaction()
    write(writer, topic, b"of the zombie")
    successor = client.producer(transactional_id=transactional_id)
    successor.init_transactions()
    successor.begin_transaction()
    write(successor, topic, b"of the successor")
    with pytest.raises(ClientError, match=FENCED):
        writer.commit_transaction()
    successor.commit_transaction()
    assert client.reader((topic, 0), isolation_level="read_committed").values(1) == [b"of the successor"]


@pytest.mark.clients("confluent", "aiokafka", "java-4.3", "java-3.9")
def test_what_a_fenced_writer_still_sends_is_refused(
    client: Client, writer: Producer, transactional_id: str, new_topic: Callable[..., str]
) -> None:
    """kafka-python's asks for a new epoch instead, and so fences its own successor, whatever the broker."""
    topic = new_topic()
    writer.begin_transaction()
    write(writer, topic, b"of the zombie")
    successor = client.producer(transactional_id=transactional_id)
    successor.init_transactions()
    successor.begin_transaction()
    write(successor, topic, b"of the successor")
    with pytest.raises(ClientError, match=FENCED):
        write_and_commit(writer, topic, b"too late")
    successor.commit_transaction()
    found = {record.value for record in client.reader((topic, 0)).read(2)}
    assert found == {b"of the zombie", b"of the successor"}
    assert client.reader((topic, 0), isolation_level="read_committed").values(1) == [b"of the successor"]


def test_a_transaction_that_takes_too_long_is_aborted(
    client: Client, transactional_id: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer = client.producer(transactional_id=transactional_id, transaction_timeout_ms=1_000)
    writer.init_transactions()
    writer.begin_transaction()
    write(writer, topic, b"never finished")
    client.produce(topic, b"after")
    reader = client.reader((topic, 0), isolation_level="read_committed")
    assert reader.values(1) == [b"after"]
    with pytest.raises(ClientError):
        writer.commit_transaction()


def test_an_empty_transaction_leaves_no_trace(
    client: Client, writer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer.begin_transaction()
    writer.commit_transaction()
    writer.begin_transaction()
    writer.abort_transaction()
    writer.begin_transaction()
    write(writer, topic, b"first")
    writer.commit_transaction()
    assert [record.offset for record in client.reader((topic, 0)).read(1)] == [0]


@pytest.mark.clients("confluent", "kafka-python", "java-4.3", "java-3.9")
def test_a_time_out_longer_than_the_broker_allows_is_refused(client: Client, transactional_id: str) -> None:
    producer = client.producer(transactional_id=transactional_id, transaction_timeout_ms=86_400_000)
    with pytest.raises(
        ClientError, match=r"INVALID_TRANSACTION_TIMEOUT|InvalidTransactionTimeout|larger than"
    ):
        producer.init_transactions()


@pytest.mark.clients("confluent", "java-4.3", "java-3.9")
def test_a_zombie_of_a_group_can_not_commit_offsets_in_a_transaction(
    client: Client, writer: Producer, new_topic: Callable[..., str], group: str
) -> None:
    source = new_topic()
    client.produce(source, b"a")
    zombie = client.consumer(group_id=group, group_instance_id="one")
    zombie.subscribe([source])
    zombie.read(1)
    successor = client.consumer(group_id=group, group_instance_id="one")
    successor.subscribe([source])
    successor.read(1)
    writer.begin_transaction()
    with pytest.raises(ClientError, match=r"FENCED_INSTANCE_ID|CommitFailed"):
        writer.send_offsets({(source, 0): 1}, zombie)
    writer.abort_transaction()
    assert successor.committed((source, 0)) is None


@pytest.mark.clients("kafka-python", "java-4.3", "java-3.9")
def test_open_transactions_and_their_producers_are_listed_and_described(
    client: Client, writer: Producer, transactional_id: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer.begin_transaction()
    write(writer, topic, b"open")
    assert client.admin.list_transactions()[transactional_id] == "Ongoing"
    described = client.admin.describe_transaction(transactional_id)
    assert (described["state"], described["partitions"]) == ("Ongoing", {(topic, 0)})
    (producer,) = client.admin.describe_producers((topic, 0))
    assert producer["producer_id"] == described["producer_id"]
    assert (producer["sequence"], producer["transaction_start"]) == (0, 0)
    writer.commit_transaction()
    eventually(lambda: client.admin.describe_transaction(transactional_id)["state"] == "CompleteCommit")
    (producer,) = client.admin.describe_producers((topic, 0))
    assert producer["transaction_start"] == -1


@pytest.mark.clients("kafka-python", "java-4.3")
def test_a_transactional_id_that_is_not_there_is_not_described(client: Client, transactional_id: str) -> None:
    with pytest.raises(ClientError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        client.admin.describe_transaction(transactional_id)


@pytest.mark.clients("java-4.3", "java-3.9")
def test_an_administrator_may_fence_a_producer(
    client: Client, writer: Producer, transactional_id: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer.begin_transaction()
    write(writer, topic, b"cut off")
    client.admin.fence_producer(transactional_id)
    with pytest.raises(ClientError, match=FENCED):
        writer.commit_transaction()


@pytest.mark.clients("kafka-python", "java-4.3", "java-3.9")
def test_an_administrator_may_abort_a_transaction_that_hangs_in_a_partition(
    client: Client, writer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    writer.begin_transaction()
    write(writer, topic, b"hangs")
    client.produce(topic, b"after")
    producers = client.admin.describe_producers((topic, 0))
    (open_one,) = [each for each in producers if each["transaction_start"] >= 0]
    client.admin.abort_transaction((topic, 0), open_one["producer_id"], open_one["epoch"])
    assert client.reader((topic, 0), isolation_level="read_committed").values(1) == [b"after"]
