"""`headrace topics`: list, create, describe, alter, clear and delete topics, here or on a Kafka cluster."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic, ResourceType

from headrace.cli.alter import Alteration
from headrace.cli.client import admin_client, result_of
from headrace.cli.completion import complete_topic
from headrace.cli.offsets import (
    existing_topic,
    offset_ranges,
    offsets_since,
    places_of,
    topic_metadata,
)
from headrace.cli.options import AsJson, Bootstrap, Yes
from headrace.cli.output import announce, print_json, print_rows, report, say
from headrace.cli.setting_changes import SettingChanges, key_and_value, settings_of
from headrace.cli.times import parse_moment_ms
from headrace.config import check_topic_name
from headrace.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="List, create, describe, alter, clear and delete topics.")

NewTopicName = Annotated[str, typer.Argument(help="The topic's name.")]
TopicName = Annotated[str, typer.Argument(help="The topic's name.", autocompletion=complete_topic)]
Settings = Annotated[list[str] | None, typer.Option("--config", help="A topic setting, KEY=VALUE.")]


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
        for name, topic in sorted(topic_metadata(admin, bootstrap).items())
        if internal or not name.startswith("__")
    }
    ranges = offset_ranges(admin, places_of(topics), bootstrap)
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "records": sum(ranges[name, number].record_count for number in topic.partitions),
        }
        for name, topic in topics.items()
    ]
    print_rows(rows, columns=("topic", "partitions", "records"), as_json=as_json)


@app.command("create")
def create_topic(
    name: NewTopicName,
    bootstrap: Bootstrap,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions.")] = 1,
    replication: Annotated[int, typer.Option(min=1, help="Copies on a Kafka cluster.")] = 1,
    config: Settings = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Succeed if it is there already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    settings = dict(key_and_value(text) for text in config or [])
    admin = admin_client(bootstrap)
    if name in topic_metadata(admin, bootstrap):
        if not if_missing:
            raise ConfigError(f"topic {name} exists already: choose another name, or use --if-missing")
        report(f"topic {name} is there already", {"topic": name, "created": False}, as_json=as_json)
        return
    topic = NewTopic(
        check_topic_name(name), num_partitions=partitions, replication_factor=replication, config=settings
    )
    result_of(admin.create_topics([topic])[name], bootstrap)
    report(
        f"created topic {name} with {_partitions(partitions)}",
        {"topic": name, "created": True, "partitions": partitions, "config": settings},
        as_json=as_json,
    )


@app.command("describe")
def describe_topic(
    name: TopicName,
    bootstrap: Bootstrap,
    all_settings: Annotated[
        bool, typer.Option("--all", help="Show settings that have their default too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a topic's partitions with their first and next offsets, and its settings."""
    admin = admin_client(bootstrap)
    topic = existing_topic(admin, name, bootstrap)
    ranges = offset_ranges(admin, places_of({name: topic}), bootstrap)
    settings = settings_of(admin, ResourceType.TOPIC, name, bootstrap)
    partitions = [
        {
            "partition": partition,
            "first_offset": ranges[name, partition].first,
            "next_offset": ranges[name, partition].next,
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
        if all_settings or not entry.is_default:
            announce(f"{key}={entry.value}")


@app.command("alter")
def alter_topic(
    name: TopicName,
    bootstrap: Bootstrap,
    config: Settings = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Give a setting its default back.")
    ] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Grow to so many partitions.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: AsJson = False,
) -> None:
    """Change a topic's settings, or give it more partitions."""
    admin = admin_client(bootstrap)
    topic = existing_topic(admin, name, bootstrap)
    alteration = Alteration(
        settings=SettingChanges.parse(ResourceType.TOPIC, name, config, unset),
        partition_count=partitions,
    )
    alteration.check(partition_count_now=len(topic.partitions))
    before = settings_of(admin, ResourceType.TOPIC, name, bootstrap)
    alteration.carry_out(admin, bootstrap, dry_run=dry_run)
    changes = alteration.changes(
        {key: entry.value for key, entry in before.items()}, partition_count_now=len(topic.partitions)
    )
    if not as_json:
        say("nothing was changed (--dry-run):" if dry_run else f"altered topic {name}:")
    print_rows(changes, columns=("what", "before", "after"), as_json=as_json)


@app.command("clear")
def clear_topic(
    name: TopicName,
    bootstrap: Bootstrap,
    before: Annotated[
        str | None,
        typer.Option(help="Only records before this moment: 2026-11-16T09:00Z, or 7d for that long ago."),
    ] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only this partition; may be repeated.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove records of a topic, all or the oldest; the topic, its settings and its offsets go on."""
    admin = admin_client(bootstrap)
    topic = existing_topic(admin, name, bootstrap)
    places = [place for place in places_of({name: topic}) if partition is None or place[1] in partition]
    unknown = set(partition or ()).difference(topic.partitions)
    if unknown:
        raise ConfigError(f"topic {name} has partitions 0 to {len(topic.partitions) - 1}, not {min(unknown)}")
    ranges = offset_ranges(admin, places, bootstrap)
    ends = {place: ranges[place].next for place in places}
    if before is not None:
        moment_ms = parse_moment_ms(before, now_ms=time.time_ns() // 1_000_000)
        ends = offsets_since(admin, places, moment_ms, bootstrap)
    count = sum(max(0, ends[place] - ranges[place].first) for place in places)
    if count and not yes:
        typer.confirm(f"Remove {count} records of topic {name} for good?", abort=True, err=True)
    removed = admin.delete_records([TopicPartition(*place, ends[place]) for place in places])
    for future in removed.values():
        result_of(future, bootstrap)
    rows = {str(number): ends[name, number] for _, number in places}
    report(
        f"removed {count} records of topic {name}",
        {"topic": name, "removed": count, "first_offsets": rows},
        as_json=as_json,
    )


@app.command("delete")
def delete_topic(name: TopicName, bootstrap: Bootstrap, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a topic and all its records."""
    admin = admin_client(bootstrap)
    existing_topic(admin, name, bootstrap)
    if not yes:
        typer.confirm(f"Delete topic {name} and all its records?", abort=True, err=True)
    result_of(admin.delete_topics([name])[name], bootstrap)
    report(f"deleted topic {name}", {"topic": name, "deleted": True}, as_json=as_json)


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count != 1 else ''}"
