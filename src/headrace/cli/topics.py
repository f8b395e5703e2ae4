"""`headrace topics`: list, create, describe and delete topics, here or on a Kafka cluster."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, TopicMetadata

from headrace.cli.client import REQUEST_TIMEOUT_S, admin_client, kafka_errors, result_of
from headrace.cli.options import AsJson, Bootstrap
from headrace.cli.output import print_json, print_rows, say
from headrace.config import check_topic_name
from headrace.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="List, create, describe and delete topics.")


class OffsetRange(NamedTuple):
    """Where a partition begins, and where its next record will be."""

    first: int
    next: int

    @property
    def record_count(self) -> int:
        """How many records lie between, if none was removed by compaction."""
        return self.next - self.first


TopicName = Annotated[str, typer.Argument(help="The topic's name.")]


@app.command("list")
def list_topics(
    bootstrap: Bootstrap,
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List topics with their partitions and how many records they hold."""
    admin = admin_client(bootstrap)
    topics = {
        name: topic
        for name, topic in sorted(_metadata(admin, bootstrap).items())
        if internal or not name.startswith("__")
    }
    offsets = _offsets(admin, topics, bootstrap)
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "records": sum(offsets[name, number].record_count for number in topic.partitions),
        }
        for name, topic in topics.items()
    ]
    print_rows(rows, columns=("topic", "partitions", "records"), as_json=as_json)


@app.command("create")
def create_topic(
    name: TopicName,
    bootstrap: Bootstrap,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions.")] = 1,
    replication: Annotated[int, typer.Option(min=1, help="Copies on a Kafka cluster.")] = 1,
    config: Annotated[list[str] | None, typer.Option(help="A topic setting, KEY=VALUE.")] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Succeed if it is there already.")] = False,
) -> None:
    """Create a topic."""
    settings = dict(_setting(text) for text in config or [])
    admin = admin_client(bootstrap)
    if name in _metadata(admin, bootstrap):
        if if_missing:
            say(f"topic {name} is there already")
            return
        raise ConfigError(f"topic {name} exists already: choose another name, or use --if-missing")
    topic = NewTopic(
        check_topic_name(name), num_partitions=partitions, replication_factor=replication, config=settings
    )
    result_of(admin.create_topics([topic])[name], bootstrap)
    say(f"created topic {name} with {partitions} partition{'s' if partitions != 1 else ''}")


@app.command("describe")
def describe_topic(name: TopicName, bootstrap: Bootstrap, as_json: AsJson = False) -> None:
    """Show a topic's partitions with their first and next offsets, and its settings."""
    admin = admin_client(bootstrap)
    topic = _existing(admin, name, bootstrap)
    offsets = _offsets(admin, {name: topic}, bootstrap)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    settings = result_of(admin.describe_configs([resource])[resource], bootstrap)
    partitions = [
        {
            "partition": partition,
            "first_offset": offsets[name, partition].first,
            "next_offset": offsets[name, partition].next,
            "leader": topic.partitions[partition].leader,
        }
        for partition in sorted(topic.partitions)
    ]
    if as_json:
        config = {key: entry.value for key, entry in sorted(settings.items())}
        print_json({"topic": name, "partitions": partitions, "config": config})
        return
    print_rows(partitions, columns=("partition", "first_offset", "next_offset", "leader"), as_json=False)
    for key, entry in sorted(settings.items()):
        if not entry.is_default:
            say(f"{key}={entry.value}")


@app.command("delete")
def delete_topic(
    name: TopicName,
    bootstrap: Bootstrap,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Delete a topic and all its records."""
    admin = admin_client(bootstrap)
    _existing(admin, name, bootstrap)
    if not yes:
        typer.confirm(f"Delete topic {name} and all its records?", abort=True, err=True)
    result_of(admin.delete_topics([name])[name], bootstrap)
    say(f"deleted topic {name}")


def _metadata(admin: AdminClient, bootstrap: str) -> dict[str, TopicMetadata]:
    with kafka_errors(bootstrap):
        return admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics


def _existing(admin: AdminClient, name: str, bootstrap: str) -> TopicMetadata:
    topics = _metadata(admin, bootstrap)
    if name not in topics:
        raise ConfigError(f"there is no topic {name}: `headrace topics list` shows what is there")
    return topics[name]


def _offsets(
    admin: AdminClient, topics: dict[str, TopicMetadata], bootstrap: str
) -> dict[tuple[str, int], OffsetRange]:
    """The first and the next offset of every partition."""
    partitions = [
        TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions
    ]
    if not partitions:
        return {}
    firsts = admin.list_offsets({partition: OffsetSpec.earliest() for partition in partitions})
    nexts = admin.list_offsets({partition: OffsetSpec.latest() for partition in partitions})
    return {
        (partition.topic, partition.partition): OffsetRange(
            result_of(firsts[partition], bootstrap).offset,
            result_of(nexts[partition], bootstrap).offset,
        )
        for partition in partitions
    }


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"--config {text!r} is not KEY=VALUE, such as retention.ms=60000")
    return key, value
