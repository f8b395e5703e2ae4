"""Every test of the contract runs on the embedded broker and on Apache Kafka, with each client it is about.

A test asks for `client` and gets all of them, or those that `@pytest.mark.clients(...)` names. Apache Kafka
and the Java clients are started at their first use, once, and skipped with one line where they can't be had.
"""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from apache_kafka import ApacheKafka, server_jars
from headrace.config import Address, BrokerConfig, LogConfig, default_cache_dir, default_jars_dir
from headrace.errors import SetupError
from headrace.streams.jars import resolve_jars
from headrace.testing.process import BrokerProcess
from headrace.testing.waiting import eventually
from kafka_clients.asyncio_kafka import AiokafkaClient
from kafka_clients.confluent import ConfluentAdmin, ConfluentClient
from kafka_clients.interface import Client, ClientError
from kafka_clients.java import SHARE_CLIENTS, JavaClient, JavaShell
from kafka_clients.kafka_python import KafkaPythonClient

BROKERS: Final = ("embedded", "apache")
PYTHON_CLIENTS: Final = ("confluent", "kafka-python", "aiokafka")
JAVA_CLIENTS: Final = ("java-4.3", "java-3.9")
CLIENTS: Final = (*PYTHON_CLIENTS, *JAVA_CLIENTS)

APACHE_SETTINGS: Final = {
    # Fifty partitions of each internal topic would only take time to create.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # Tests wait for time-outs: these are ours already.
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
    "message.max.bytes": str(16 * 1024 * 1024),
    "log.cleaner.backoff.ms": "100",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A broker under test."""

    kind: str
    bootstrap: str
    data_dir: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.contract)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        metafunc.parametrize(
            "server", [_param(name, is_java=name == "apache") for name in BROKERS], indirect=True
        )
    if "client" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("clients")
        names = marker.args if marker else CLIENTS
        metafunc.parametrize(
            "client", [_param(name, is_java=name in JAVA_CLIENTS) for name in names], indirect=True
        )


def _param(name: str, *, is_java: bool) -> Any:
    return pytest.param(name, marks=[pytest.mark.java] if is_java else [])


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """In a process of its own: some calls of librdkafka's Python wrapper keep all other threads waiting."""
    # As impatient as `APACHE_SETTINGS`.
    config = BrokerConfig(
        listen=Address("127.0.0.1", 0),
        consumer_session_timeout_ms=3_000,
        consumer_heartbeat_interval_ms=200,
        share_session_timeout_ms=3_000,
        share_heartbeat_interval_ms=200,
        share_record_lock_duration_ms=1_000,
        log=LogConfig(cleaner_interval_ms=100),
    )
    data_dir = tmp_path_factory.mktemp("embedded")
    with BrokerProcess(data_dir, config=config) as broker:
        yield Server(kind="embedded", bootstrap=broker.bootstrap, data_dir=data_dir)


@pytest.fixture(scope="session")
def apache_server() -> Iterator[Server]:
    try:
        kafka = ApacheKafka(settings=APACHE_SETTINGS)
        kafka.start()
    except SetupError as error:
        pytest.skip(f"no Apache Kafka here: {error}")
    try:
        _create_internal_topics(kafka.bootstrap)
        yield Server(kind="apache", bootstrap=kafka.bootstrap, data_dir=kafka.data_dir)
    finally:
        kafka.stop()


def _create_internal_topics(bootstrap: str) -> None:
    """Use a transaction and a group once: until then the broker has no coordinator and asks for patience."""
    client = ConfluentClient(bootstrap)
    client.producer(transactional_id="first").init_transactions()
    consumer = client.consumer(group_id="first")

    def has_coordinator() -> bool:
        try:
            return consumer.committed(("none", 0)) is None
        except ClientError as error:
            if "COORDINATOR" in error.code:
                return False
            raise

    eventually(has_coordinator)
    client.close()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """The broker under test."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture(scope="session")
def kafka_jars() -> list[Path]:
    """Apache Kafka's server, tools and newest clients."""
    try:
        return server_jars()
    except SetupError as error:
        pytest.skip(f"no Java clients here: {error}")


@pytest.fixture(scope="session")
def java_4_shell(kafka_jars: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaShell]:
    """The clients of Kafka 4.3."""
    yield from _shell(kafka_jars, tmp_path_factory, SHARE_CLIENTS)


@pytest.fixture(scope="session")
def java_3_shell(kafka_jars: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaShell]:
    """The clients of Kafka 3.9, which Spark uses."""
    try:
        connector = resolve_jars(default_cache_dir(), default_jars_dir())
    except SetupError as error:
        pytest.skip(f"no Java clients here: {error}")
    older = [path for path in connector if path.name.startswith("kafka-clients-")]
    others = [path for path in kafka_jars if not path.name.startswith("kafka")]
    yield from _shell([*older, *others], tmp_path_factory)


def _shell(
    jars: list[Path], tmp_path_factory: pytest.TempPathFactory, *extensions: str
) -> Iterator[JavaShell]:
    shell = JavaShell(jars, tmp_path_factory.mktemp("java"), *extensions)
    yield shell
    shell.close()


@pytest.fixture
def open_client(request: pytest.FixtureRequest, server: Server) -> Iterator[Callable[[str], Client]]:
    """Open the client of a library by its name; it is closed after the test."""
    opened: list[Client] = []

    def open_client(name: str) -> Client:
        opened.append(_client(name, server, request))
        return opened[-1]

    yield open_client
    for client in reversed(opened):
        client.close()
    gc.collect()


def _client(name: str, server: Server, request: pytest.FixtureRequest) -> Client:
    match name:
        case "confluent":
            return ConfluentClient(server.bootstrap)
        case "kafka-python":
            return KafkaPythonClient(server.bootstrap)
        case "aiokafka":
            return AiokafkaClient(server.bootstrap)
        case "java-4.3":
            return JavaClient(server.bootstrap, request.getfixturevalue("java_4_shell"))
        case _:
            return JavaClient(server.bootstrap, request.getfixturevalue("java_3_shell"))


@pytest.fixture
def client(request: pytest.FixtureRequest, open_client: Callable[[str], Client]) -> Client:
    """The client under test."""
    return open_client(request.param)


@pytest.fixture(scope="session")
def administrators() -> dict[str, ConfluentAdmin]:
    """One for each broker that was needed so far."""
    return {}


@pytest.fixture
def administrator(administrators: dict[str, ConfluentAdmin], server: Server) -> ConfluentAdmin:
    """An administrator for what a test only needs and isn't about."""
    if server.kind not in administrators:
        administrators[server.kind] = ConfluentClient(server.bootstrap).open_admin()
    return administrators[server.kind]


@pytest.fixture
def new_topic(administrator: ConfluentAdmin) -> Callable[..., str]:
    """Create a topic under a name of its own, and wait until the broker serves it."""

    def new_topic(partition_count: int = 1, **config: str) -> str:
        name = f"topic-{secrets.token_hex(4)}"
        settings = {setting.replace("_", "."): value for setting, value in config.items()}
        administrator.create_topic(name, partition_count, settings)
        eventually(lambda: administrator.has_leaders(name))
        return name

    return new_topic


@pytest.fixture
def group() -> str:
    """A group's name that nobody has used yet."""
    return f"group-{secrets.token_hex(4)}"


@pytest.fixture
def transactional_id() -> str:
    """A transactional id that nobody has used yet."""
    return f"writer-{secrets.token_hex(4)}"
