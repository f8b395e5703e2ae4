"""Connections to Redis, and its errors in our own words.

A password is never told: what is said of a server is its host, port and database, or its socket. Nothing is
tried again behind our back: whoever asked knows what it would mean.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, cast

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, parse_url
from redis.retry import Retry

from headrace.errors import ConfigError, HeadraceError, PipelineError, PipelineFailed, StoreUnavailable

CONNECT_S_MAX: Final = 30.0
"""How long to try to connect: a server that restarts has to be awaited, also while it reads its data."""
CONNECT_ATTEMPT_S_MAX: Final = 10.0
ANSWER_S_MAX: Final = 60.0
"""How long an answer may take: a server that writes its data to a slow disk stands still meanwhile."""
CONNECT_PAUSE_S: Final = 0.05
CONNECT_PAUSE_S_MAX: Final = 2.0

Client = redis.Redis

_CODES: Final[Mapping[type[Exception], str]] = MappingProxyType(
    {
        exceptions.AuthenticationError: "NOAUTH",
        exceptions.NoPermissionError: "NOPERM",
        exceptions.BusyLoadingError: "LOADING",
        exceptions.ReadOnlyError: "READONLY",
        exceptions.OutOfMemoryError: "OOM",
        exceptions.MasterDownError: "MASTERDOWN",
        exceptions.TryAgainError: "TRYAGAIN",
        exceptions.AskError: "MOVED",
        exceptions.ClusterDownError: "CLUSTERDOWN",
        exceptions.ClusterCrossSlotError: "CROSSSLOT",
    }
)
"""The codes that the client takes off the texts of errors; the first class that fits counts."""
_HOPELESS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NOAUTH": "give the right user and password: redis://user:password@host:6379/0",
        "NOPERM": "allow the user all commands on the cache's key and on its ledgers, {cache}.headrace.*",
        "without any password configured": "it has no password, and one is given",
        "DB index is out of range": "it has no such database",
        "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted: add ?ssl_ca_certs=FILE to the url",
        "WRONG_VERSION_NUMBER": "it does not speak TLS: write redis://",
    }
)
"""What will be the same the next time, and what to do: the user's settings are wrong."""
_CLUSTER: Final = ("MOVED", "CLUSTERDOWN", "CROSSSLOT")
_PASSING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LOADING": "it is reading its data",
        "READONLY": "it is a replica: name the primary, or wait until it is one",
        "OOM": "it has no memory left: raise its maxmemory",
        "MISCONF": "it can't write its data to disk: look into its log",
        "MASTERDOWN": "it is a replica without its primary",
        "NOREPLICAS": "it has too few replicas",
        "BUSY": "it is busy with a script",
        "TRYAGAIN": "it is moving data",
        "max number of clients": "it has too many clients: raise its maxclients",
        "UNBLOCKED": "it has become a replica",
    }
)
"""What may go well another time. An error in a script has its code within its text."""


def connect(url: str, *, within_s: float | None = None) -> Client:
    """Connect, again and again for a while where no server answers. Use it as a context manager."""
    client = Client.from_pool(ConnectionPool(**_options(url)))
    deadline_s = time.monotonic() + (CONNECT_S_MAX if within_s is None else within_s)
    pause_s = CONNECT_PAUSE_S
    while True:
        try:
            client.ping()
        except TypeError as error:
            raise ConfigError(f"an option in the url of {described(url)} is not known: {error}") from None
        except exceptions.RedisError as error:
            failure = _explained(url, "connecting", error)
            if not isinstance(failure, StoreUnavailable) or time.monotonic() + pause_s > deadline_s:
                client.close()
                # Neither the cause nor its text may tell the password.
                raise failure from None
        else:
            return client
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, CONNECT_PAUSE_S_MAX)


def fields_of(client: Client, key: str) -> Mapping[bytes, bytes]:
    """All fields of a hash; none where there is no such key."""
    return cast("Mapping[bytes, bytes]", client.hgetall(key))


def set_fields(client: Client, key: str, fields: Mapping[str, str]) -> None:
    """Write fields of a hash."""
    client.hset(key, items=[text for pair in fields.items() for text in pair])


@contextmanager
def connected(url: str, what: str) -> Iterator[Client]:
    """A connection, and errors that say what failed."""
    with explained(url, what), connect(url) as client:
        yield client


def described(url: str) -> str:
    """The server and the database, without the password."""
    options = _options(url)
    if "path" in options:
        return f"Redis {options['path']}/{options.get('db', 0)}"
    user = f"{options['username']}@" if options.get("username") else ""
    return (
        f"Redis {user}{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db', 0)}"
    )


@contextmanager
def explained(url: str, what: str) -> Iterator[None]:
    """Say what failed in our own words."""
    try:
        yield
    except exceptions.RedisError as error:
        raise _explained(url, what, error) from None


def _explained(url: str, what: str, error: exceptions.RedisError) -> HeadraceError:
    words = _words(url, error)
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "")
    told = f"{what} failed on {described(url)}: {words}"

    def has(sign: str) -> bool:
        return code == sign or re.search(rf"\b{re.escape(sign)}\b", words) is not None

    for sign, advice in _HOPELESS.items():
        if has(sign):
            return ConfigError(f"{told}; {advice}")
    if any(map(has, _CLUSTER)):
        return PipelineError(
            f"{told}; it is a node of a Redis Cluster, where a cache is not supported: name a single server, "
            "or a primary with replicas"
        )
    if has("WRONGTYPE"):
        return PipelineError(
            f"{told}; the key is there already and is no hash: delete it, or give the cache another name"
        )
    for sign, advice in _PASSING.items():
        if has(sign):
            return StoreUnavailable(f"{told}; {advice}")
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError | exceptions.WatchError):
        return StoreUnavailable(told)
    return PipelineFailed(told)


def _words(url: str, error: exceptions.RedisError) -> str:
    line = " ".join(str(error).split()) or type(error).__name__
    password = _options(url).get("password")
    return line.replace(str(password), "***") if password else line


def _options(url: str) -> dict[str, Any]:
    try:
        given = dict(parse_url(url))
    except ValueError:
        # Its message may repeat what it could not read, which may be the password.
        raise ConfigError(
            "the url of a cache can't be read: write redis://user:password@host:6379/0, rediss:// with TLS, "
            "or unix:///path/to/socket"
        ) from None
    limits = {"socket_timeout": ANSWER_S_MAX, "socket_connect_timeout": CONNECT_ATTEMPT_S_MAX}
    ours = {
        "client_name": "headrace",
        "decode_responses": False,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "retry_on_timeout": False,
    }
    return limits | given | ours
