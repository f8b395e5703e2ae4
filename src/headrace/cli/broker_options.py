"""What `headrace broker` can be told, and what it does then. Does without Typer, for a quick start."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from headrace.cli.output import announce
from headrace.config import (
    Address,
    BrokerConfig,
    Durability,
    QueueConfig,
    SaslMechanism,
    SecurityConfig,
    TlsConfig,
    default_data_dir,
)
from headrace.errors import ConfigError
from headrace.logs import LogFormat, LogLevel, configure_logging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.broker import Listening

GARBAGE_COUNT_MIN: Final = 20_000
"""So many new objects before garbage is looked for. Messages that wait are no garbage, and there are
thousands of them at any time: with Python's own 700, a tenth of a queue's time went into looking at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options by their names on the command line, where they are explained (see broker.py)."""

    data: Path = field(default_factory=default_data_dir)
    listen: str = "127.0.0.1:9092"
    amqp_listen: str | None = None
    durability: Durability = "sync"
    partitions: int = 1
    users: Path | None = None
    sasl_mechanisms: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    advertised: str | None = None
    metrics_listen: str | None = None
    metrics_public: bool = False
    log_format: LogFormat = "text"
    log_level: LogLevel = "info"

    def run(self) -> None:
        """Run the broker until a signal comes."""
        # What is loaded at the start stays: looking for garbage among it takes time, now and later.
        gc.disable()
        from headrace.broker import run_broker  # noqa: PLC0415  # loaded without looking for garbage

        configure_logging(self.log_format, self.log_level)
        config = self.config()
        run_broker(config, lambda listening: _announce(listening, config))

    def config(self) -> BrokerConfig:
        """The broker's settings; raises ConfigError when these can't be."""
        mechanisms = self.sasl_mechanisms
        return BrokerConfig(
            listen=Address.parse(self.listen),
            queues=None if self.amqp_listen is None else QueueConfig(listen=Address.parse(self.amqp_listen)),
            data_dir=self.data,
            durability=self.durability,
            default_partition_count=self.partitions,
            advertised=None if self.advertised is None else Address.parse(self.advertised),
            metrics_listen=None if self.metrics_listen is None else Address.parse(self.metrics_listen),
            metrics_public=self.metrics_public,
            security=SecurityConfig(
                users_file=self.users,
                sasl_mechanisms=None if mechanisms is None else _mechanisms(mechanisms),
                tls=self._tls(),
            ),
        )

    def _tls(self) -> TlsConfig | None:
        if self.tls_certificate is None and self.tls_key is None and self.tls_client_ca is None:
            return None
        if self.tls_certificate is None or self.tls_key is None:
            raise ConfigError("TLS needs both --tls-certificate and --tls-key")
        return TlsConfig(certificate=self.tls_certificate, key=self.tls_key, client_ca=self.tls_client_ca)


def _mechanisms(text: str) -> tuple[SaslMechanism, ...]:
    # SecurityConfig refuses what is none of the names.
    return cast("tuple[SaslMechanism, ...]", tuple(name.strip().upper() for name in text.split(",")))


def _announce(listening: Listening, config: BrokerConfig) -> None:
    gc.freeze()
    gc.set_threshold(GARBAGE_COUNT_MIN)
    gc.enable()
    if listening.amqp is not None:
        announce(f"queues listening on {listening.amqp} for AMQP 0-9-1")
    announce(
        f"broker listening on {listening.kafka}, data in {config.data_dir}, durability {config.durability}"
    )


def _one_of(kind: Any) -> Callable[[str], str]:
    choices = get_args(kind)

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(text)
        return text

    return read


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ValueError(text)
    return int(text)


_FLAG: Final = "metrics_public"
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "data": Path,
    "listen": str,
    "amqp_listen": str,
    "durability": _one_of(Durability),
    "partitions": _count,
    "users": Path,
    "sasl_mechanisms": str,
    "tls_certificate": Path,
    "tls_key": Path,
    "tls_client_ca": Path,
    "advertised": str,
    "metrics_listen": str,
    "log_format": _one_of(LogFormat),
    "log_level": _one_of(LogLevel),
}


def read_options(arguments: Sequence[str]) -> BrokerOptions | None:
    """The options, if each is written in full, once, and with a value that is plainly right.

    None for all else, be it a wish for help or a mistake: Typer understands more, and explains.
    """
    values: dict[str, Any] = {}
    remaining = list(reversed(arguments))
    while remaining:
        argument = remaining.pop()
        name = argument.removeprefix("--").replace("-", "_")
        if argument != "--" + name.replace("_", "-") or name in values:
            return None
        if name == _FLAG:
            values[name] = True
            continue
        if name not in _READERS or not remaining or not remaining[-1] or remaining[-1].startswith("-"):
            return None
        try:
            values[name] = _READERS[name](remaining.pop())
        except ValueError:
            return None
    return BrokerOptions(**values)
