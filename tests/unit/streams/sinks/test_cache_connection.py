"""What is said of a Redis that does not answer, or answers with an error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from redis import exceptions

from headrace.errors import ConfigError, HeadraceError, PipelineError, PipelineFailed, StoreUnavailable
from headrace.streams.sinks.cache.connection import connect, described, explained

SECRET = "hunter2"
URL = f"redis://ann:{SECRET}@cache.example:6380/3"


def told(error: exceptions.RedisError) -> HeadraceError:
    with pytest.raises(HeadraceError) as failed, explained(URL, "writing"):
        raise error
    assert "writing failed on Redis ann@cache.example:6380/3" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert failed.value.__cause__ is None
    return failed.value


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (exceptions.ConnectionError(f"Error 111 {SECRET} refused"), StoreUnavailable, "111"),
        (exceptions.TimeoutError("Timeout reading from socket"), StoreUnavailable, "Timeout"),
        (exceptions.BusyLoadingError("Redis is loading"), StoreUnavailable, "it is reading its data"),
        (exceptions.ReadOnlyError("You can't write"), StoreUnavailable, "name the primary"),
        (exceptions.OutOfMemoryError("command not allowed"), StoreUnavailable, "raise its maxmemory"),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF"), StoreUnavailable, "to disk"),
        (
            exceptions.ResponseError("Error running script (call to f_1): @user_script:3: OOM command not"),
            StoreUnavailable,
            "raise its maxmemory",
        ),
        (exceptions.AuthenticationError("Authentication required."), ConfigError, "user and password"),
        (exceptions.NoPermissionError("this user has no permissions"), ConfigError, "headrace.*"),
        (exceptions.MovedError("3999 127.0.0.1:6381"), PipelineError, "a node of a Redis Cluster"),
        (exceptions.ClusterCrossSlotError("Keys in request"), PipelineError, "a node of a Redis Cluster"),
        (exceptions.ResponseError("WRONGTYPE Operation against a key"), PipelineError, "is no hash"),
        (exceptions.ResponseError("ERR unknown command"), PipelineFailed, "unknown command"),
    ],
)
def test_errors_are_told_as_passing_or_lasting_with_what_to_do(
    error: exceptions.RedisError, kind: type[HeadraceError], advice: str
) -> None:
    failure = told(error)
    assert type(failure) is kind
    assert advice in str(failure)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (f"redis://:{SECRET}@127.0.0.1:1/0", StoreUnavailable),
        (f"unix://:{SECRET}@/no/such/socket", StoreUnavailable),
        (f"redis://:{SECRET}@127.0.0.1:port/0", ConfigError),
        (f"redis://:{SECRET}@127.0.0.1:1/0?socket_timeout={SECRET}", ConfigError),
        (f"redis://:{SECRET}@127.0.0.1:1/0?colour=blue", ConfigError),
    ],
)
def test_a_password_is_never_told(url: str, kind: type[HeadraceError]) -> None:
    with pytest.raises(HeadraceError) as failed:
        connect(url, within_s=0.1)
    assert type(failed.value) is kind
    assert SECRET not in str(failed.value)
    assert failed.value.__cause__ is None


def test_a_server_is_described_by_where_it_is() -> None:
    assert described("redis://localhost") == "Redis localhost:6379/0"
    assert described("unix:///run/redis.sock?db=2") == "Redis /run/redis.sock/2"


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that answers everything with the same; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(4096):
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_a_server_that_wants_a_password_is_not_asked_again_and_again() -> None:
    with (
        answering(b"-NOAUTH Authentication required.\r\n") as port,
        pytest.raises(ConfigError, match="give the right user and password"),
    ):
        connect(f"redis://127.0.0.1:{port}")
