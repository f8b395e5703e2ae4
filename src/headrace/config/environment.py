"""What the environment says. No other module reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final


def default_bootstrap() -> str:
    """The broker that clients and commands talk to when none is named (HEADRACE_BOOTSTRAP)."""
    return os.environ.get("HEADRACE_BOOTSTRAP", "127.0.0.1:9092")


def default_queues_url() -> str:
    """The queue server that clients and commands talk to when none is named (HEADRACE_QUEUES)."""
    return os.environ.get("HEADRACE_QUEUES", "amqp://guest:guest@127.0.0.1:5672/")


def default_client_config() -> Path | None:
    """A file of settings for the Kafka clients of the commands (HEADRACE_CLIENT_CONFIG)."""
    explicit = os.environ.get("HEADRACE_CLIENT_CONFIG")
    return Path(explicit) if explicit else None


def default_data_dir() -> Path:
    """Where the broker and the pipelines keep their data (HEADRACE_DATA)."""
    return Path(os.environ.get("HEADRACE_DATA", ".headrace"))


def default_cache_dir() -> Path:
    """Where downloaded jars are kept between runs (HEADRACE_CACHE)."""
    if explicit := os.environ.get("HEADRACE_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace"


def default_jars_dir() -> Path | None:
    """A directory of connector jars to use instead of downloading them (HEADRACE_JARS)."""
    explicit = os.environ.get("HEADRACE_JARS")
    return Path(explicit) if explicit else None


def default_postgres_dsn() -> str | None:
    """The PostgreSQL to use instead of an embedded one (HEADRACE_POSTGRES), as a DSN or a URL."""
    return os.environ.get("HEADRACE_POSTGRES") or None


def default_postgres_programs() -> Path | None:
    """Where the programs of PostgreSQL are that the embedded one is run with (HEADRACE_POSTGRES_PROGRAMS)."""
    explicit = os.environ.get("HEADRACE_POSTGRES_PROGRAMS")
    return Path(explicit) if explicit else None


def default_redis_program() -> Path | None:
    """The program of Redis that the embedded one is run with (HEADRACE_REDIS_PROGRAM)."""
    explicit = os.environ.get("HEADRACE_REDIS_PROGRAM")
    return Path(explicit) if explicit else None


def search_path() -> str:
    """Where the system looks for programs (PATH)."""
    return os.environ.get("PATH", os.defpath)


def default_tls_key_password() -> str | None:
    """The password of an encrypted private key (HEADRACE_TLS_KEY_PASSWORD); others could see an option."""
    return os.environ.get("HEADRACE_TLS_KEY_PASSWORD")


def new_user_password() -> str | None:
    """The password of a user that is being added (HEADRACE_PASSWORD), for programs that can't be prompted."""
    return os.environ.get("HEADRACE_PASSWORD")


def default_console_token() -> str | None:
    """The token of the console (HEADRACE_CONSOLE_TOKEN), for whoever starts it again and again."""
    return os.environ.get("HEADRACE_CONSOLE_TOKEN") or None


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process and more, for a child."""
    return {**os.environ, **more}


FAILPOINTS_VARIABLE: Final = "HEADRACE_FAILPOINTS"


def failpoints_to_arm() -> str:
    """Where a test wants the broker to die, fail or wait (HEADRACE_FAILPOINTS); see failpoints.py."""
    return os.environ.get(FAILPOINTS_VARIABLE, "")


def java_home() -> Path | None:
    """JAVA_HOME, where it is set."""
    explicit = os.environ.get("JAVA_HOME")
    return Path(explicit) if explicit else None


def java_options_of_environment() -> str:
    """What Java is started with beside its command line, or Spark starts it with."""
    names = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
    return " ".join(os.environ.get(name, "") for name in names)
