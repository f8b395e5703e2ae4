"""`headrace doctor`: look at this machine, its pipelines and the broker, say what is wrong and what to do."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from headrace.cli.client import REQUEST_TIMEOUT_S, admin_client, consumer, producer, result_of
from headrace.cli.offsets import topic_metadata
from headrace.cli.options import AsJson, Bootstrap, DataDir
from headrace.cli.output import out, print_json
from headrace.config import GIB, default_cache_dir, default_jars_dir
from headrace.driver.status import broken_statuses, read_statuses
from headrace.driver.waiting import waiting
from headrace.errors import HeadraceError

Verdict = Literal["ok", "note", "problem"]

FREE_BYTES_MIN: Final = 1 * GIB
OPEN_FILES_MIN: Final = 4_096
PRIVATE_MODE: Final = 0o067
"""What nobody else may do. The group may pass without looking: see headrace.postgres.home."""
COLOURS: Final = {"ok": "green", "note": "yellow", "problem": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def doctor(
    bootstrap: Bootstrap,
    data: DataDir,
    write: Annotated[
        bool, typer.Option("--write", help="Send a record through the broker too, by a topic of its own.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine, its pipelines and the broker. Exit code 1 means that something does not work.

    Of each running pipeline that has windows it says how far its watermark is, and what keeps it back: why a
    window has not ended yet.
    """
    now = datetime.now(UTC)
    findings = [
        *machine_findings(data),
        *pipeline_findings(data, now),
        *broker_findings(bootstrap, write=write),
    ]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            _show(finding)
    if any(finding.verdict == "problem" for finding in findings):
        raise typer.Exit(1)


def machine_findings(data: Path) -> Iterator[Finding]:
    """What can be seen without a broker."""
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield _java()
    yield _jars()
    yield _open_files()
    yield _data_directory(data)


def pipeline_findings(data: Path, now: datetime) -> Iterator[Finding]:
    """What the windows of pipelines wait for."""
    for status in read_statuses(data):
        for each in waiting(status.seen_now(), now):
            verdict: Verdict = "note" if each.is_held_back else "ok"
            yield Finding(f"{status.name}, {each.operator}", verdict, each.found, each.advice)
    for path in broken_statuses(data):
        advice = "run the pipeline again, which replaces the file; or remove it"
        yield Finding(path.stem, "note", f"what its driver has written down can't be read: {path}", advice)


def broker_findings(bootstrap: str, *, write: bool) -> Iterator[Finding]:
    """What the broker says."""
    admin = admin_client(bootstrap)
    begin_s = time.perf_counter()
    try:
        topics = topic_metadata(admin, bootstrap)
    except HeadraceError as error:
        yield Finding("broker", "problem", str(error))
        return
    elapsed_ms = (time.perf_counter() - begin_s) * 1000
    cluster = result_of(admin.describe_cluster(), bootstrap)
    nodes = ", ".join(f"{node.host}:{node.port}" for node in cluster.nodes)
    yield Finding(
        "broker", "ok", f"{bootstrap} answered in {elapsed_ms:.0f} ms; cluster {cluster.cluster_id}: {nodes}"
    )
    leaderless = sorted(
        f"{name}-{number}"
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader < 0
    )
    if leaderless:
        named = ", ".join(leaderless[:5])
        yield Finding(
            "partitions", "problem", f"{len(leaderless)} have no leader: {named}", "look at the cluster's log"
        )
    else:
        count = sum(len(topic.partitions) for topic in topics.values())
        yield Finding("partitions", "ok", f"{count} in {len(topics)} topics, each with a leader")
    yield from _dead_letters(topics)
    if write:
        yield _round_trip(admin, bootstrap)


def _java() -> Finding:
    from headrace.streams.java import find_java  # noqa: PLC0415  # Other commands need no pipelines.

    try:
        found = find_java()
    except HeadraceError as error:
        return Finding("java", "note", str(error), "only pipelines need it")
    return Finding("java", "ok", f"{found.version} at {found.executable}")


def _jars() -> Finding:
    from headrace.streams.jars import are_jars_here  # noqa: PLC0415  # Other commands need no pipelines.

    if not are_jars_here(default_cache_dir(), default_jars_dir()):
        return Finding("jars", "note", "Spark's connector jars are not here yet", "run `headrace setup`")
    return Finding("jars", "ok", "Spark's connector jars are here")


def _open_files() -> Finding:
    import resource  # noqa: PLC0415  # It is not there on every system.

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_MIN:
        return Finding(
            "open files",
            "note",
            f"at most {hard} may be open",
            f"raise the limit to {OPEN_FILES_MIN}: ulimit -Hn",
        )
    return Finding("open files", "ok", "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard}")


def _data_directory(data: Path) -> Finding:
    name = "data directory"
    there = next((each for each in (data, *data.absolute().parents) if each.exists()), Path("/"))
    if not os.access(there, os.W_OK):
        return Finding(name, "problem", f"{there} can't be written to", "choose another with --data")
    free_bytes = shutil.disk_usage(there).free
    if free_bytes < FREE_BYTES_MIN:
        return Finding(name, "problem", f"{data} has {free_bytes // 2**20} MiB left", "free some space")
    if data.exists() and data.stat().st_mode & PRIVATE_MODE:
        return Finding(name, "note", f"{data} can be read by others", f"chmod 700 {data}")
    state = "there" if data.exists() else "not there yet"
    return Finding(name, "ok", f"{data} is {state}; {free_bytes / GIB:.0f} GiB are free")


def _dead_letters(topics: dict[str, TopicMetadata]) -> Iterator[Finding]:
    dead = sorted(name for name in topics if name.endswith(".dead-letters"))
    if dead:
        yield Finding(
            "dead letters",
            "note",
            f"rows that could not be read are in {', '.join(dead)}",
            f"headrace consume {dead[0]} --from-beginning --until-end --json",
        )


def _round_trip(admin: AdminClient, bootstrap: str) -> Finding:
    topic = f"headrace-doctor-{time.time_ns()}"
    try:
        result_of(admin.create_topics([NewTopic(topic, 1, 1)])[topic], bootstrap)
        try:
            elapsed_ms = _send_and_read(bootstrap, topic)
        finally:
            result_of(admin.delete_topics([topic])[topic], bootstrap)
    except (HeadraceError, KafkaException) as error:
        return Finding("round trip", "problem", str(error), "look at the broker's log")
    if elapsed_ms is None:
        return Finding("round trip", "problem", "the record did not come back", "look at the broker's log")
    return Finding("round trip", "ok", f"a record was acknowledged and read back in {elapsed_ms:.0f} ms")


def _send_and_read(bootstrap: str, topic: str) -> float | None:
    sender = producer(bootstrap, {"message.timeout.ms": int(REQUEST_TIMEOUT_S * 1000)})
    sender.list_topics(topic, timeout=REQUEST_TIMEOUT_S)
    reader = consumer(bootstrap, {"group.id": topic})
    try:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        begin_s = time.perf_counter()
        sender.produce(topic, b"hello")
        sender.flush(REQUEST_TIMEOUT_S)
        message = reader.poll(REQUEST_TIMEOUT_S)
        if message is None or message.error() is not None:
            return None
        return (time.perf_counter() - begin_s) * 1000
    finally:
        reader.close()


def _show(finding: Finding) -> None:
    colour = COLOURS[finding.verdict]
    advice = f" ({finding.advice})" if finding.advice and finding.verdict != "ok" else ""
    line = f"{finding.check}: {finding.found}{advice}".replace("[", r"\[")
    out.print(f"[{colour}]{finding.verdict:<8}[/{colour}]{line}", soft_wrap=True)
