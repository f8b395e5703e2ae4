"""`headrace topics`, `produce` and `consume`, as subprocesses against a broker process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from tests.acceptance.conftest import CommandLine

HEADRACE = (sys.executable, "-m", "headrace")
READ_ALL = ("--from-beginning", "--until-end")


def test_a_topic_can_be_created_listed_described_and_deleted(with_broker: CommandLine) -> None:
    with_broker.output("topics", "create", "orders", "--partitions", "3")
    listed = json.loads(with_broker.output("topics", "list", "--json"))
    assert listed == [{"topic": "orders", "partitions": 3, "records": 0}]
    described = json.loads(with_broker.output("topics", "describe", "orders", "--json"))
    offsets = [(p["partition"], p["first_offset"], p["next_offset"]) for p in described["partitions"]]
    assert offsets == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert described["config"]["cleanup.policy"] == "delete"
    with_broker.output("topics", "delete", "orders", "--yes")
    assert json.loads(with_broker.output("topics", "list", "--json")) == []


def test_a_table_names_topics_partitions_and_records(with_broker: CommandLine) -> None:
    with_broker.output("produce", "orders", stdin="a\nb\n")
    lines = with_broker.output("topics", "list").splitlines()
    assert lines[0].split() == ["topic", "partitions", "records"]
    assert lines[1].split() == ["orders", "1", "2"]


def test_lines_that_are_produced_come_back_in_order(with_broker: CommandLine) -> None:
    lines = "".join(f"line {number}\n" for number in range(1000))
    with_broker.output("produce", "t", stdin=lines)
    assert with_broker.output("consume", "t", *READ_ALL) == lines


@pytest.mark.parametrize("command", [("consume", "t", "--from-beginning"), ("topics", "list", "--json")])
def test_a_reader_that_has_enough_is_no_failure(with_broker: CommandLine, command: tuple[str, ...]) -> None:
    with_broker.output("produce", "t", stdin="a line\n" * 10_000)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*HEADRACE, *command],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=400,
        env=with_broker.environment(),
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_survives_the_way_through_the_broker(
    with_broker: CommandLine, compression: str
) -> None:
    text = "wörter 漢字 🎉 " * 50 + "\n"
    with_broker.output("produce", "t", "--compression", compression, stdin=text * 20)
    assert with_broker.output("consume", "t", *READ_ALL) == text * 20


def test_bytes_that_are_no_text_are_kept_as_they_are(with_broker: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"good\n\xff\xfe bad\ngood\n")
    with_broker.output("produce", "t", "--file", str(tmp_path / "lines"))
    consumer = Consumer({"bootstrap.servers": with_broker.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    values = [message.value() for message in consumer.consume(3, timeout=20)]
    consumer.close()
    assert values == [b"good", b"\xff\xfe bad", b"good"]


def test_keys_and_headers_are_kept(with_broker: CommandLine) -> None:
    with_broker.output("produce", "t", "--key-separator", ":", "--header", "source=test", stdin="k:v:w\n")
    record = json.loads(with_broker.output("consume", "t", *READ_ALL, "--json"))
    assert (record["key"], record["value"], record["headers"]) == ("k", "v:w", [["source", "test"]])


def test_records_of_one_key_stay_in_one_partition(with_broker: CommandLine) -> None:
    with_broker.output("topics", "create", "t", "--partitions", "4")
    lines = "".join(json.dumps({"card": f"card-{n % 7}", "n": n}) + "\n" for n in range(200))
    with_broker.output("produce", "t", "--key-field", "card", stdin=lines)
    records = [json.loads(r) for r in with_broker.output("consume", "t", *READ_ALL, "--json").splitlines()]
    assert len(records) == 200
    places = {(record["key"], record["partition"]) for record in records}
    assert len(places) == 7
    assert len({partition for _, partition in places}) > 1


def test_a_group_goes_on_after_what_it_has_printed(with_broker: CommandLine) -> None:
    with_broker.output("produce", "t", stdin="1\n2\n3\n4\n5\n")
    first = with_broker.output("consume", "t", "--from-beginning", "--group", "g", "--count", "2")
    rest = with_broker.output("consume", "t", "--from-beginning", "--group", "g", "--until-end")
    assert (first, rest) == ("1\n2\n", "3\n4\n5\n")


def test_what_was_acknowledged_survives_kill_9_of_the_broker(command_line: CommandLine) -> None:
    lines = "".join(f"{number}\n" for number in range(5000))
    with command_line.broker() as process:
        command_line.output("produce", "t", stdin=lines)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with command_line.broker():
        assert command_line.output("consume", "t", *READ_ALL) == lines


def test_a_broker_stops_cleanly_on_sigterm(command_line: CommandLine) -> None:
    with command_line.broker() as process:
        process.terminate()
        assert process.wait(20) == 0


def test_without_a_broker_commands_say_how_to_start_one(command_line: CommandLine) -> None:
    said = command_line.refusal("topics", "list", code=1)
    assert "no broker answers at 127.0.0.1:1" in said
    assert "headrace broker" in said


def test_an_unknown_topic_is_named(with_broker: CommandLine) -> None:
    for arguments in (
        ("consume", "nope"),
        ("topics", "describe", "nope"),
        ("topics", "delete", "nope", "-y"),
    ):
        assert "there is no topic nope" in with_broker.refusal(*arguments, code=2)
    assert json.loads(with_broker.output("topics", "list", "--json")) == []


def test_creating_a_topic_twice_is_refused_unless_asked_otherwise(with_broker: CommandLine) -> None:
    with_broker.output("topics", "create", "t")
    assert "exists already" in with_broker.refusal("topics", "create", "t", code=2)
    with_broker.output("topics", "create", "t", "--if-missing")


def test_a_bad_topic_name_is_refused(with_broker: CommandLine) -> None:
    assert "is not a topic name" in with_broker.refusal("topics", "create", "a/b", code=2)


def test_a_bad_line_is_named_and_the_lines_before_it_are_kept(with_broker: CommandLine) -> None:
    said = with_broker.refusal("produce", "t", "--key-separator", ":", stdin="a:1\nb:2\noops\n", code=2)
    assert "line 3 has no key separator" in said
    assert "2 of 2 records acknowledged" in said
    assert with_broker.output("consume", "t", *READ_ALL) == "1\n2\n"


def test_two_brokers_can_not_share_a_data_directory(with_broker: CommandLine) -> None:
    said = with_broker.refusal("broker", "--listen", "127.0.0.1:0", code=2)
    assert "data" in said
    assert "process" in said


def test_a_taken_port_is_named(with_broker: CommandLine) -> None:
    port = with_broker.bootstrap.rpartition(":")[2]
    said = with_broker.refusal("broker", "--listen", with_broker.bootstrap, "--data", "other", code=2)
    assert port in said


def test_a_broker_refuses_to_listen_beyond_loopback(command_line: CommandLine) -> None:
    assert "loopback" in command_line.refusal("broker", "--listen", "0.0.0.0:9092", code=2)


def test_the_version_is_printed(command_line: CommandLine) -> None:
    assert command_line.output("--version").startswith("headrace 0.")
