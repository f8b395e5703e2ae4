"""`headrace groups`: list, describe, reset and delete consumer groups, here or on a Kafka cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigSource, ConsumerGroupDescription, ResourceType

from headrace.cli.client import REQUEST_TIMEOUT_S, admin_client, kafka_errors, result_of
from headrace.cli.completion import complete_group, complete_topic
from headrace.cli.offsets import Place, offset_ranges
from headrace.cli.options import AsJson, Bootstrap, Yes
from headrace.cli.output import print_json, print_rows, report, say
from headrace.cli.reset import Target, places_to_reset, plan_reset
from headrace.cli.setting_changes import SettingChanges, settings_of
from headrace.errors import ConfigError, FaultError

app = typer.Typer(no_args_is_help=True, help="List, describe, reset and delete consumer groups.")

GroupName = Annotated[str, typer.Argument(help="The group's id.", autocompletion=complete_group)]
EMPTY_STATES = frozenset({"EMPTY", "DEAD", "UNKNOWN"})


@app.command("list")
def list_groups(bootstrap: Bootstrap, as_json: AsJson = False) -> None:
    """List consumer groups with their state, their members and how far behind they are."""
    admin = admin_client(bootstrap)
    listed = result_of(admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), bootstrap)
    if listed.errors:
        raise FaultError(f"the broker at {bootstrap} could not list all groups: {listed.errors[0]}")
    rows: list[dict[str, object]] = []
    for group in sorted(listed.valid, key=lambda each: each.group_id):
        description = _describe(admin, group.group_id, bootstrap)
        lags = _lags(admin, group.group_id, bootstrap)
        rows.append(
            {
                "group": group.group_id,
                "type": group.type.name.lower() if group.type is not None else "unknown",
                "state": description.state.name.lower(),
                "members": len(description.members),
                "lag": sum(row["lag"] for row in lags if isinstance(row["lag"], int)),
            }
        )
    print_rows(rows, columns=("group", "type", "state", "members", "lag"), as_json=as_json)


@app.command("describe")
def describe_group(group: GroupName, bootstrap: Bootstrap, as_json: AsJson = False) -> None:
    """Show a group's members, what each of them reads, and how far behind every partition is."""
    admin = admin_client(bootstrap)
    description = _existing(admin, group, bootstrap)
    readers = _readers(description)
    partitions = _lags(admin, group, bootstrap, readers)
    members = [
        {
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [f"{each.topic}-{each.partition}" for each in _assigned(member)],
        }
        for member in description.members
    ]
    if as_json:
        state = description.state.name.lower()
        print_json({"group": group, "state": state, "members": members, "partitions": partitions})
        return
    say(f"group {group} is {description.state.name.lower()} and has {_members(len(members))}")
    print_rows(
        partitions,
        columns=("topic", "partition", "committed", "end", "lag", "client", "host"),
        as_json=False,
    )


@app.command("reset")
def reset_group(
    group: GroupName,
    bootstrap: Bootstrap,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="The topic, or TOPIC:0,1 for some partitions; repeatable.", autocompletion=complete_topic
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All that the group has committed.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Past the newest record.")] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    to_time: Annotated[
        str | None, typer.Option(help="To the first record at this moment: 2026-11-16T09:30:00Z.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="To the first record so long ago: 1h30m, 7d.")
    ] = None,
    shift_by: Annotated[int | None, typer.Option(help="So many records on, or back if negative.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, only show the plan.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move a group that nobody is in to other offsets. Shows the plan; --execute carries it out."""
    target = Target.parse(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_time=to_time,
        by_duration=by_duration,
        shift_by=shift_by,
    )
    admin = admin_client(bootstrap)
    committed = committed_offsets(admin, group, bootstrap)
    places = places_to_reset(admin, topic or [], committed, all_topics=all_topics, bootstrap=bootstrap)
    plan = plan_reset(admin, places, committed, target, bootstrap)
    if execute:
        _require_empty(_describe(admin, group, bootstrap))
        _move(admin, group, plan, bootstrap)
    rows = [
        {"topic": place[0], "partition": place[1], "before": committed.get(place), "after": offset}
        for place, offset in plan.items()
    ]
    if not as_json:
        say(f"moved group {group}:" if execute else f"group {group} would move; add --execute to do it:")
    print_rows(rows, columns=("topic", "partition", "before", "after"), as_json=as_json)


def _move(admin: AdminClient, group: str, plan: Mapping[Place, int], bootstrap: str) -> None:
    """Commit these offsets for a group that nobody is in."""
    moved = [TopicPartition(*place, offset) for place, offset in plan.items()]
    request = ConsumerGroupTopicPartitions(group, moved)
    done = result_of(admin.alter_consumer_group_offsets([request])[group], bootstrap)
    for each in done.topic_partitions or []:
        if each.error is not None:
            raise FaultError(f"{each.topic}-{each.partition} was not moved: {each.error.str()}")


@app.command("settings")
def group_settings(
    group: GroupName,
    bootstrap: Bootstrap,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="Set KEY=VALUE, such as share.auto.offset.reset=earliest."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Give a setting its default back.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show or change a group's settings; the group need not be there yet. Share groups have most of them."""
    admin = admin_client(bootstrap)
    changes = SettingChanges.parse(ResourceType.GROUP, group, config, unset)
    settings = settings_of(admin, ResourceType.GROUP, group, bootstrap)
    if not changes:
        rows: list[dict[str, object]] = [
            {
                "setting": name,
                "value": entry.value,
                "set": "here" if ConfigSource(entry.source) is ConfigSource.GROUP_CONFIG else "",
            }
            for name, entry in sorted(settings.items())
        ]
        print_rows(rows, columns=("setting", "value", "set"), as_json=as_json)
        return
    changes.carry_out(admin, bootstrap, dry_run=dry_run)
    if not as_json:
        say("nothing was changed (--dry-run):" if dry_run else f"changed the settings of group {group}:")
    before = {name: entry.value for name, entry in settings.items()}
    print_rows(changes.rows(before), columns=("what", "before", "after"), as_json=as_json)


@app.command("delete")
def delete_groups(
    groups: Annotated[list[str], typer.Argument(help="The groups' ids.", autocompletion=complete_group)],
    bootstrap: Bootstrap,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete groups that nobody is in, and the offsets that they have committed."""
    admin = admin_client(bootstrap)
    for group in groups:
        _require_empty(_existing(admin, group, bootstrap))
    if not yes:
        typer.confirm(f"Delete {', '.join(groups)} and their offsets?", abort=True, err=True)
    for future in admin.delete_consumer_groups(groups).values():
        result_of(future, bootstrap)
    report(f"deleted {', '.join(groups)}", {"deleted": groups}, as_json=as_json)


def committed_offsets(admin: AdminClient, group: str, bootstrap: str) -> dict[Place, int]:
    """What the group has committed; nothing for a group that isn't there."""
    request = ConsumerGroupTopicPartitions(group)
    try:
        found = admin.list_consumer_group_offsets([request])[group].result(REQUEST_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        with kafka_errors(bootstrap):
            raise
    return {
        (each.topic, each.partition): each.offset for each in found.topic_partitions or [] if each.offset >= 0
    }


def _lags(
    admin: AdminClient, group: str, bootstrap: str, readers: dict[Place, dict[str, object]] | None = None
) -> list[dict[str, object]]:
    readers = readers or {}
    committed = committed_offsets(admin, group, bootstrap)
    places = sorted({*committed, *readers})
    ends = {place: found.next for place, found in offset_ranges(admin, places, bootstrap).items()}
    nobody: dict[str, object] = {"client": None, "host": None}
    return [
        {
            "topic": place[0],
            "partition": place[1],
            "committed": committed.get(place),
            "end": ends[place],
            "lag": max(0, ends[place] - committed[place]) if place in committed else None,
            **readers.get(place, nobody),
        }
        for place in places
    ]


def _readers(description: ConsumerGroupDescription) -> dict[Place, dict[str, object]]:
    return {
        (each.topic, each.partition): {"client": member.client_id, "host": member.host}
        for member in description.members
        for each in _assigned(member)
    }


def _assigned(member: object) -> list[TopicPartition]:
    assignment = getattr(member, "assignment", None)
    return [] if assignment is None else list(assignment.topic_partitions)


def _describe(admin: AdminClient, group: str, bootstrap: str) -> ConsumerGroupDescription:
    described: ConsumerGroupDescription = result_of(admin.describe_consumer_groups([group])[group], bootstrap)
    return described


def _existing(admin: AdminClient, group: str, bootstrap: str) -> ConsumerGroupDescription:
    listed = result_of(admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), bootstrap)
    if all(each.group_id != group for each in listed.valid):
        raise ConfigError(f"there is no group {group}: `headrace groups list` shows what is there")
    return _describe(admin, group, bootstrap)


def _require_empty(description: ConsumerGroupDescription) -> None:
    if description.members:
        raise ConfigError(
            f"group {description.group_id} has {_members(len(description.members))}: stop them first"
        )


def _members(count: int) -> str:
    return f"{count} member{'s' if count != 1 else ''}"
