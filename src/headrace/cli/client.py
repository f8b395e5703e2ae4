"""Kafka clients for the commands. They speak the protocol only, so any Kafka cluster will do.

What a cluster wants besides an address, such as a user and a certificate, stands in a file of librdkafka's
settings, one KEY=VALUE a line, that `headrace --client-config` or HEADRACE_CLIENT_CONFIG names:

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-256
    sasl.username=ada
    sasl.password=...
    ssl.ca.location=/etc/kafka/ca.pem
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.errors import BrokerUnavailable, ConfigError, FaultError, HeadraceError

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 6.0

_UNREACHABLE: Final = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - that is how the library names its local errors
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
}
_REFUSED_LOGIN: Final = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,  # noqa: SLF001
}
_UNKNOWN_TOPIC: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
}


_from_file: dict[str, str | int | float | bool] = {}
_admins: WeakSet[AdminClient] = WeakSet()
_refused_logins: list[KafkaError] = []
"""Why connections failed. The library tells so aside; the request itself just fails by time-out."""


def use_client_config(path: Path) -> None:
    """Take settings for all clients of this process from a file."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"the client settings {path} can't be read: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            key, equals, value = text.partition("=")
            if not equals:
                # The line may hold a password, so it is not shown.
                raise ConfigError(f"{path}, line {number}, is not KEY=VALUE")
            _from_file[key.strip()] = value.strip()


def client_options() -> dict[str, str]:
    """The settings of the file, for clients that are made elsewhere."""
    return {key: str(value) for key, value in _from_file.items()}


def admin_client(bootstrap: str) -> AdminClient:
    """A client for topics and groups."""
    _refused_logins.clear()
    with _understood():
        admin = AdminClient(_settings(bootstrap))
    _admins.add(admin)
    return admin


def producer(bootstrap: str, settings: Mapping[str, str | int | float | bool]) -> Producer:
    """An idempotent producer that waits for all acknowledgements, unless the settings say otherwise."""
    with _understood():
        return Producer({**_settings(bootstrap), "enable.idempotence": True, **settings})


def consumer(bootstrap: str, settings: Mapping[str, str | int | float | bool]) -> Consumer:
    """A consumer."""
    with _understood():
        return Consumer({**_settings(bootstrap), **settings})


def _settings(bootstrap: str) -> dict[str, Any]:
    # The library's own log lines would mix with ours; what matters reaches us as errors.
    own = {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "error_cb": _on_error,
        "socket.connection.setup.timeout.ms": 5000,
    }
    return {**own, **_from_file}


def _on_error(error: KafkaError) -> None:
    if error.code() in _REFUSED_LOGIN:
        _refused_logins.append(error)


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except KafkaException as exception:
        error = exception.args[0]
        raise ConfigError(f"the client settings are wrong: {error.str()}") from exception


@contextmanager
def kafka_errors(bootstrap: str) -> Iterator[None]:
    """Turn the library's exceptions into errors that say what to do."""
    try:
        yield
    except KafkaException as exception:
        raise explain(exception.args[0], bootstrap) from exception


def explain(error: KafkaError, bootstrap: str) -> HeadraceError:
    """Our error for one of the library's."""
    if error.code() in _UNREACHABLE:
        for admin in _admins:
            admin.poll(0)  # calls _on_error with what has been left for it
        if not _refused_logins:
            return BrokerUnavailable(
                f"no broker answers at {bootstrap}: start one with `headrace broker`, or name another with "
                "--bootstrap. One that wants a log-in or TLS needs `headrace --client-config FILE`"
            )
        error = _refused_logins[-1]
    if error.code() in _REFUSED_LOGIN:
        return ConfigError(
            f"{bootstrap} refused the login: {error.str()}. Put user, password and certificate into a file, "
            "and name it with `headrace --client-config FILE`"
        )
    if error.code() == KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001
        return ConfigError(
            f"no such partition at {bootstrap}: `headrace topics alter NAME --partitions N` adds partitions"
        )
    if error.code() == KafkaError.INVALID_RECORD:
        return ConfigError(
            f"the broker at {bootstrap} refused a record: a compacted topic takes none without a key "
            "(--key-field, --key-separator, --key), and timestamps must be within what the topic allows"
        )
    if error.code() in _UNKNOWN_TOPIC:
        return ConfigError(f"no such topic at {bootstrap}: `headrace topics list` shows what is there")
    return FaultError(f"the broker at {bootstrap} refused: {error.str()} ({error.name()})")


def result_of(future: Future[T], bootstrap: str) -> T:
    """The result of an admin call, or an error that says what to do."""
    with kafka_errors(bootstrap):
        try:
            return future.result(REQUEST_TIMEOUT_S)
        except TimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error  # noqa: SLF001
