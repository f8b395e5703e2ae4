"""The commands do the same on the embedded broker and on Apache Kafka."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner

from headrace.cli.app import new_app
from headrace.errors import ConfigError, FaultError

if TYPE_CHECKING:
    from conftest import Server

READ_ALL = ("--from-beginning", "--until-end")


class Commands:
    """Runs commands in this process, against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._runner = CliRunner()

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that must succeed, and return what it printed."""
        done = self._runner.invoke(
            new_app(), [*arguments, "--bootstrap", self.bootstrap], input=stdin, catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *arguments: str, stdin: str = "") -> Any:
        """Run a command that must succeed, and return the JSON that it printed."""
        return json.loads(self.run(*arguments, "--json", stdin=stdin))


@pytest.fixture
def commands(server: Server) -> Commands:
    return Commands(server.bootstrap)


@pytest.fixture
def topic(commands: Commands) -> str:
    """A topic with two partitions: values 0 to 9, even ones in partition 0."""
    name = f"cli-{secrets.token_hex(6)}"
    commands.run("topics", "create", name, "--partitions", "2")
    for partition in (0, 1):
        lines = "".join(json.dumps({"n": n}) + "\n" for n in range(partition, 10, 2))
        commands.run("produce", name, "--key-field", "n", "--partition", str(partition), stdin=lines)
    return name


def numbers(output: str) -> list[int]:
    return sorted(json.loads(line)["n"] for line in output.splitlines())


def test_reading_may_begin_at_an_offset_a_moment_or_the_last_few(commands: Commands, topic: str) -> None:
    assert numbers(commands.run("consume", topic, "--until-end", "--from-offset", "3")) == [6, 7, 8, 9]
    assert numbers(commands.run("consume", topic, "--until-end", "--from-offset", "1:4")) == [9]
    assert numbers(commands.run("consume", topic, "--until-end", "--tail", "1")) == [8, 9]
    assert numbers(commands.run("consume", topic, "--until-end", "--from-time", "1h")) == list(range(10))
    assert numbers(commands.run("consume", topic, "--until-end", "--from-time", "2999-01-01")) == []


def test_records_can_be_chosen_by_partition_key_and_value(commands: Commands, topic: str) -> None:
    assert numbers(commands.run("consume", topic, *READ_ALL, "--partition", "1")) == [1, 3, 5, 7, 9]
    assert numbers(commands.run("consume", topic, *READ_ALL, "--key", "3", "--key", "4")) == [3, 4]
    assert numbers(commands.run("consume", topic, *READ_ALL, "--where", "@.n > 7")) == [8, 9]


def test_an_offset_that_is_not_there_is_named_with_those_that_are(commands: Commands, topic: str) -> None:
    with pytest.raises(ConfigError, match="has offsets 0 to 5, not 99"):
        commands.run("consume", topic, "--from-offset", "99")


def test_what_one_topic_prints_another_one_takes(commands: Commands, topic: str) -> None:
    copy = f"{topic}-copy"
    commands.run("topics", "create", copy, "--partitions", "2")
    printed = commands.run("consume", topic, *READ_ALL, "--json")
    commands.run("produce", copy, "--input", "records", stdin=printed)
    kept = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
    one, other = (
        sorted(
            tuple(json.dumps(json.loads(line)[name]) for name in kept)
            for line in commands.run("consume", name, *READ_ALL, "--json").splitlines()
        )
        for name in (topic, copy)
    )
    assert one == other


def test_a_topic_can_be_altered_and_grown_after_a_dry_run(commands: Commands, topic: str) -> None:
    change = ("topics", "alter", topic, "--config", "retention.ms=86400000", "--partitions", "3")
    planned = commands.json(*change, "--dry-run")
    assert [row["what"] for row in planned] == ["retention.ms", "partitions"]
    assert len(commands.json("topics", "describe", topic)["partitions"]) == 2
    commands.run(*change)
    described = commands.json("topics", "describe", topic)
    assert len(described["partitions"]) == 3
    assert described["config"]["retention.ms"] == "86400000"
    before = commands.json("topics", "alter", topic, "--unset", "retention.ms")
    assert before == [{"what": "retention.ms", "before": "86400000", "after": "(default)"}]
    assert commands.json("topics", "describe", topic)["config"]["retention.ms"] != "86400000"


def test_settings_of_a_group_are_shown_changed_and_taken_back(commands: Commands) -> None:
    group = f"cli-{secrets.token_hex(6)}"
    change = ("groups", "settings", group, "--config", "share.auto.offset.reset=earliest")

    def reset_of_group() -> dict[str, str]:
        (row,) = (
            row
            for row in commands.json("groups", "settings", group)
            if row["setting"] == "share.auto.offset.reset"
        )
        return dict(row)

    assert commands.json(*change, "--dry-run")[0]["before"] == "latest"
    assert reset_of_group() == {"setting": "share.auto.offset.reset", "value": "latest", "set": ""}
    commands.run(*change)
    assert reset_of_group() == {"setting": "share.auto.offset.reset", "value": "earliest", "set": "here"}
    commands.run("groups", "settings", group, "--unset", "share.auto.offset.reset")
    assert reset_of_group()["value"] == "latest"
    with pytest.raises(FaultError, match=r"share\.auto\.offset\.reset"):
        commands.run("groups", "settings", group, "--config", "share.auto.offset.reset=sometime")


def test_a_topic_is_never_made_smaller(commands: Commands, topic: str) -> None:
    with pytest.raises(ConfigError, match="it can only grow"):
        commands.run("topics", "alter", topic, "--partitions", "1")


def test_a_cleared_topic_is_empty_and_goes_on_with_the_next_offset(commands: Commands, topic: str) -> None:
    assert commands.json("topics", "clear", topic, "--yes")["removed"] == 10
    assert commands.run("consume", topic, *READ_ALL) == ""
    commands.run("produce", topic, "--partition", "0", stdin='{"n": 10}\n')
    record = commands.json("consume", topic, *READ_ALL)
    assert (record["partition"], record["offset"]) == (0, 5)


def test_clearing_may_spare_what_is_newer_than_a_moment(commands: Commands, topic: str) -> None:
    # Where nothing is to be removed, nobody is asked whether to.
    assert commands.json("topics", "clear", topic, "--before", "1h")["removed"] == 0
    assert len(commands.run("consume", topic, *READ_ALL).splitlines()) == 10


def test_a_group_is_listed_described_moved_and_deleted(commands: Commands, topic: str) -> None:
    group = f"{topic}-group"
    commands.run("consume", topic, "--from-beginning", "--group", group, "--count", "10")
    assert {"group": group, "type": "classic", "state": "empty", "members": 0, "lag": 0} in commands.json(
        "groups", "list"
    )
    planned = commands.json("groups", "reset", group, "--topic", f"{topic}:1", "--to-offset", "2")
    assert planned == [{"topic": topic, "partition": 1, "before": 5, "after": 2}]
    assert _committed(commands, group) == [5, 5]
    commands.run("groups", "reset", group, "--topic", f"{topic}:1", "--to-offset", "2", "--execute")
    assert _committed(commands, group) == [5, 2]
    commands.run("groups", "reset", group, "--all-topics", "--by-duration", "1h", "--execute")
    assert _committed(commands, group) == [0, 0]
    commands.run("groups", "reset", group, "--all-topics", "--to-latest", "--execute")
    commands.run("groups", "reset", group, "--all-topics", "--shift-by", "-2", "--execute")
    assert _committed(commands, group) == [3, 3]
    assert numbers(commands.run("consume", topic, "--group", group, "--until-end")) == [6, 7, 8, 9]
    commands.run("groups", "delete", group, "--yes")
    assert group not in [row["group"] for row in commands.json("groups", "list")]


def _committed(commands: Commands, group: str) -> list[int]:
    return [row["committed"] for row in commands.json("groups", "describe", group)["partitions"]]


def test_a_group_with_members_is_neither_moved_nor_deleted(commands: Commands, topic: str) -> None:
    group = f"{topic}-busy"
    member = Consumer(
        {"bootstrap.servers": commands.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    try:
        member.subscribe([topic])
        message = member.poll(30)
        assert message is not None
        assert message.error() is None
        described = commands.json("groups", "describe", group)
        assert [each["partitions"] for each in described["members"]] == [[f"{topic}-0", f"{topic}-1"]]
        with pytest.raises(ConfigError, match="has 1 member: stop them first"):
            commands.run("groups", "delete", group, "--yes")
        with pytest.raises(ConfigError, match="has 1 member: stop them first"):
            commands.run("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute")
    finally:
        member.close()


def test_the_doctor_finds_nothing_wrong(commands: Commands) -> None:
    findings = {each["check"]: each["verdict"] for each in commands.json("doctor", "--write")}
    assert findings["broker"] == "ok"
    assert findings["partitions"] == "ok"
    assert findings["round trip"] == "ok"
