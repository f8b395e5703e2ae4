"""Who captures: a process of ours, or Debezium's connector in Kafka Connect.

Debezium runs in Kafka Connect's standalone worker, from the jars of `debezium_jars.txt`, each known by its
checksum: Connect with what it loads, and the connector with what it loads. They are fetched once, beside the
connector jars and by the same resolver; HEADRACE_CACHE and HEADRACE_JARS work as they do there. What is
missing to run it raises SetupError.

Its settings are those that serve it best here: it polls every 10 ms, takes 8,192 events at once of a queue of
32,768, and its producer sends batches of up to 512 KiB; the heap and the collector are those of Connect's own
start script. Events are as ours: JSON without schemas, numerics as texts. Ours also has the topics of
transactions and heartbeats, which Debezium leaves out unless it is told otherwise.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from apache_kafka import ending_with_us, listed_jars
from headrace.config import default_cache_dir, default_jars_dir
from headrace.errors import ChildFailed
from headrace.streams.jars import Show, resolve_jars
from headrace.streams.java import find_java
from source import TABLE, Source

JAR_LIST: Final = Path(__file__).with_name("debezium_jars.txt")
STOP_S_MAX: Final = 60.0
MB: Final = 1_000_000
JAVA_OPTIONS: Final = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
WORKER: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "listeners": "http://127.0.0.1:0",
    # Faster than to look through all classes.
    "plugin.discovery": "service_load",
    "producer.batch.size": str(512 * 1024),
}
CONNECTOR: Final = {
    "name": "bench",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "filtered",
    "table.include.list": TABLE,
    "snapshot.mode": "no_data",
    "decimal.handling.mode": "string",
    "poll.interval.ms": "10",
    "max.batch.size": "8192",
    "max.queue.size": "32768",
}


class Contender:
    """A process that captures one table. It ends with us, even when we are killed."""

    name = ""

    def __init__(self, home: Path, source: Source, bootstrap: str, prefix: str) -> None:
        self.home = home
        self.source = source
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.topic = f"{prefix}.{TABLE}"
        self.slot = prefix
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Whatever has to be there before the first start."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """What is run."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the process, and return at once."""
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*ending_with_us(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home,
            )

    def stop(self) -> None:
        """Stop it in good order. Harmless when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Raise ChildFailed with what it said last if it has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            said = (self.home / "log").read_text(errors="replace")[-2000:]
            raise ChildFailed(f"{self.name} ended with code {code}: {said}")

    def memory_mb(self) -> float:
        """What it and its children have for themselves, with their share of what they share (PSS)."""
        assert self._process is not None
        pss_bytes = 0
        with suppress(psutil.NoSuchProcess):
            family = [psutil.Process(self._process.pid)]
            family += family[0].children(recursive=True)
            for each in family:
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    pss_bytes += each.memory_full_info().pss
        return pss_bytes / MB


class Headrace(Contender):
    """`headrace capture start`."""

    name = "Headrace"

    def prepare(self) -> None:
        """Add the capture."""
        options = {
            "--dsn": self.source.dsn,
            "--bootstrap": self.bootstrap,
            "--data": str(self.home),
            "--table": TABLE,
            "--slot": self.slot,
            "--snapshot": "never",
        }
        pairs = [each for pair in options.items() for each in pair]
        command = [sys.executable, "-m", "headrace", "capture", "add", self.prefix, *pairs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ChildFailed(f"the capture could not be added: {done.stderr}")

    def command(self) -> list[str]:
        """The command line, as a user has it."""
        options = ("--data", str(self.home))
        return [sys.executable, "-m", "headrace", "capture", "start", self.prefix, *options]


class Debezium(Contender):
    """Kafka Connect with Debezium's connector."""

    name = "Debezium"
    jars: tuple[Path, ...] = ()

    @classmethod
    def fetch(cls, show: Show) -> None:
        """Have Java and the jars; SetupError where they can't be had."""
        find_java()
        jars = listed_jars(JAR_LIST)
        cls.jars = tuple(resolve_jars(default_cache_dir(), default_jars_dir(), jars=jars, show=show))

    def prepare(self) -> None:
        """Write its two files of settings."""
        worker = {
            **WORKER,
            "bootstrap.servers": self.bootstrap,
            "offset.storage.file.filename": str(self.home / "offsets"),
        }
        reached = self.source.parameters
        connector = {
            **CONNECTOR,
            "database.hostname": reached["host"],
            "database.port": reached["port"],
            "database.user": reached["user"],
            "database.password": reached["password"],
            "database.dbname": reached["dbname"],
            "topic.prefix": self.prefix,
            "slot.name": self.slot,
            "publication.name": self.prefix,
        }
        _write(self.home / "worker.properties", worker)
        _write(self.home / "connector.properties", connector)

    def command(self) -> list[str]:
        """The standalone worker."""
        files = (str(self.home / "worker.properties"), str(self.home / "connector.properties"))
        return [
            str(find_java().executable),
            *JAVA_OPTIONS,
            "-cp",
            ":".join(map(str, self.jars)),
            "org.apache.kafka.connect.cli.ConnectStandalone",
            *files,
        ]


def _write(path: Path, settings: Mapping[str, object]) -> None:
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
