"""A real Apache Kafka, to compare ourselves with: one node in KRaft mode, from its Maven artifacts.

    with ApacheKafka() as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})

The jars are those of `apache_kafka_jars.txt`, each known by its checksum: Kafka's server and tools with what
they load of their dependencies. They are fetched once, beside the connector jars and by the same resolver;
HEADRACE_CACHE and HEADRACE_JARS work as they do there. Whatever is missing to run it raises SetupError, so
that a test can be skipped with its one line.

Kafka's data and its log file lie in a temporary directory that goes when it is stopped. It ends with us, even
when we are killed, where the system has `setpriv`.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headrace.config import default_cache_dir, default_jars_dir
from headrace.errors import ChildFailed, SetupError
from headrace.streams.jars import Jar, Show, fetch_with_spark, resolve_jars
from headrace.streams.java import find_java

VERSION: Final = "4.3.1"
JAR_LIST: Final = Path(__file__).with_name("apache_kafka_jars.txt")
START_S_MAX: Final = 90.0
TOOL_S_MAX: Final = 600.0
START_ATTEMPTS: Final = 3
"""The ports are free when they are chosen; somebody else may be quicker."""

SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""What a single node needs. All else is Kafka's default."""


def server_jars(show: Show = print) -> list[Path]:
    """The jars of Kafka's server, tools and clients, fetched where missing; SetupError if they can't be."""
    jars = listed_jars(JAR_LIST)
    return resolve_jars(default_cache_dir(), default_jars_dir(), jars=jars, show=show, fetch=_fetch)


def run_java(jars: Sequence[Path], main_class: str, *arguments: str, heap: str = "256m") -> str:
    """Run one of Kafka's programs to its end and return what it printed."""
    command = [*java_command(jars, heap), main_class, *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TOOL_S_MAX, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ChildFailed(f"{main_class} did not end within {TOOL_S_MAX:.0f} s") from error
    if done.returncode != 0:
        raise ChildFailed(
            f"{main_class} ended with {done.returncode}: {_last_lines(done.stdout + done.stderr)}"
        )
    return done.stdout


def java_command(jars: Sequence[Path], heap: str) -> list[str]:
    """How to start Java with these jars; the class or source file to run comes next."""
    return [
        str(find_java().executable),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        ":".join(map(str, jars)),
    ]


class ApacheKafka:
    """One Kafka server, from `start` to `stop`; both belong to one thread."""

    def __init__(self, *, settings: Mapping[str, str] | None = None, heap: str = "512m") -> None:
        """Settings add to `SETTINGS` or replace them; the heap is what -Xmx is given."""
        self._settings = {**SETTINGS, **(settings or {})}
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self._home: Path | None = None
        self._port = 0
        self.jars: list[Path] = []
        self.start_s = 0.0
        """How long it took from the start of the process until it served."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process that runs the server."""
        return self._running().pid

    @property
    def data_dir(self) -> Path:
        """Where the server keeps its partitions."""
        if self._home is None:
            raise SetupError("Apache Kafka is not running: start it first")
        return self._home / "data"

    def tool(self, main_class: str, *arguments: str, heap: str = "256m") -> str:
        """Run one of Kafka's programs, such as `org.apache.kafka.tools.ProducerPerformance`."""
        return run_java(self.jars, main_class, *arguments, heap=heap)

    def start(self) -> None:
        """Return when the server serves. Raises SetupError where Java or the jars can't be had."""
        self.jars = server_jars()
        for attempt in range(START_ATTEMPTS):
            try:
                self._start_once()
            except ChildFailed as failure:
                self.stop()
                if "Address already in use" not in str(failure) or attempt + 1 == START_ATTEMPTS:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop the server and remove its data. Harmless when it isn't running."""
        if self._process is not None:
            # In good order it takes ten seconds, for data that is of no use any more.
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._home is not None:
            shutil.rmtree(self._home)
            self._home = None

    def _start_once(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._port, controller_port = _free_ports()
        configuration = self._home / "server.properties"
        configuration.write_text(self._properties(controller_port))
        cluster_id = "aGVhZHJhY2UtY29udHJhYw"
        run_java(self.jars, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(configuration))
        output_path = self._home / "kafka.log"
        with output_path.open("wb") as output:
            self._process = subprocess.Popen(
                [*ending_with_us(), *self._server_command(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_started(output_path)

    def _server_command(self, configuration: Path) -> list[str]:
        says_when_started = "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"
        java, *options = java_command(self.jars, self._heap)
        # Kafka's own start script takes the concurrent collector, and so does Java by default.
        options.remove("-XX:+UseSerialGC")
        return [java, says_when_started, *options, "kafka.Kafka", str(configuration)]

    def _properties(self, controller_port: int) -> str:
        settings = {
            **self._settings,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": f"{self._settings['node.id']}@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir),
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _wait_until_started(self, output_path: Path) -> None:
        process, begin = self._running(), time.monotonic()
        end = begin + START_S_MAX
        while "Kafka Server started" not in (output := output_path.read_text(errors="replace")):
            if process.poll() is not None:
                raise ChildFailed(f"Apache Kafka ended with {process.returncode}: {_last_lines(output)}")
            if time.monotonic() > end:
                raise ChildFailed(f"Apache Kafka did not start in {START_S_MAX:.0f} s: {_last_lines(output)}")
            time.sleep(0.05)
        self.start_s = time.monotonic() - begin

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise SetupError("Apache Kafka is not running: start it first")
        return self._process


def listed_jars(path: Path) -> tuple[Jar, ...]:
    """The jars that a file names, one a line: SHA-256, then group:artifact:version."""
    jars = []
    for line in path.read_text().splitlines():
        sha256, coordinate = line.split()
        group, artifact, version = coordinate.split(":")
        jars.append(Jar(group=group, artifact=artifact, version=version, sha256=sha256))
    return tuple(jars)


def _fetch(jars: tuple[Jar, ...], directory: Path, show: Show) -> None:
    """Take Scala's library from Spark, whose resolver never hands it out, and have the rest resolved."""
    import pyspark  # noqa: PLC0415  # Only fetching needs it.

    spark_jars = Path(pyspark.__file__).parent / "jars"
    scala = [jar for jar in jars if jar.group == "org.scala-lang"]
    for jar in scala:
        if not (spark_jars / jar.filename).is_file():
            raise SetupError(
                f"the installed Spark brings no {jar.filename}, which Apache Kafka {VERSION} needs"
            )
        shutil.copyfile(spark_jars / jar.filename, directory / jar.filename)
    fetch_with_spark(tuple(jar for jar in jars if jar not in scala), directory, show)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def ending_with_us() -> list[str]:
    """What a command begins with to end when we do, even when we are killed; nothing without `setpriv`."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _last_lines(output: str, count: int = 5) -> str:
    return (
        " | ".join([line.strip() for line in output.splitlines() if line.strip()][-count:])
        or "(it said nothing)"
    )
