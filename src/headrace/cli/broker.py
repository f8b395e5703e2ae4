"""`headrace broker`: the broker alone, in the foreground."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, cast

import typer

from headrace.cli.options import DataDir, LogFormatOption, LogLevelOption
from headrace.cli.output import announce
from headrace.config import (
    Address,
    BrokerConfig,
    Durability,
    SaslMechanism,
    SecurityConfig,
    TlsConfig,
)
from headrace.errors import ConfigError
from headrace.logs import configure_logging

Listen = Annotated[str, typer.Option(help="Where to listen; port 0 picks a free one.")]
DurabilityOption = Annotated[
    Durability,
    typer.Option(help="sync: acknowledged means on disk. os: in the page cache, as Kafka does."),
]
Partitions = Annotated[int, typer.Option(min=1, help="Partitions of topics that clients create.")]
Users = Annotated[
    Path | None,
    typer.Option(help="Clients must log in as one of the users in this file (see `headrace users`)."),
]
SaslMechanisms = Annotated[
    str | None,
    typer.Option(
        help="How clients may log in, with commas: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN.",
        show_default="all that are safe here",
    ),
]
TlsCertificate = Annotated[
    Path | None, typer.Option(help="Encrypt connections with this certificate (chain), a PEM file.")
]
TlsKey = Annotated[
    Path | None,
    typer.Option(help="The certificate's key, a PEM file; HEADRACE_TLS_KEY_PASSWORD decrypts it."),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(help="Clients must show a certificate of one of the authorities in this PEM file."),
]
Advertised = Annotated[
    str | None,
    typer.Option(help="Where clients are told to connect, for proxies; else where they have connected."),
]
MetricsListen = Annotated[
    str | None,
    typer.Option(help="Serve Prometheus metrics and health over HTTP, at 127.0.0.1:9404 for example."),
]
MetricsPublic = Annotated[
    bool, typer.Option("--metrics-public", help="Allow metrics beyond loopback, without a log-in.")
]


def broker(
    data: DataDir,
    listen: Listen = "127.0.0.1:9092",
    durability: DurabilityOption = "sync",
    partitions: Partitions = 1,
    users: Users = None,
    sasl_mechanisms: SaslMechanisms = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    advertised: Advertised = None,
    metrics_listen: MetricsListen = None,
    metrics_public: MetricsPublic = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Run the broker until Ctrl-C. Any Kafka client can use it."""
    # What is loaded at the start stays: looking for garbage among it takes time, now and later.
    gc.disable()
    # Each command imports only what it needs: the others start faster.
    from headrace.broker import run_broker  # noqa: PLC0415

    configure_logging(log_format, log_level)
    config = BrokerConfig(
        listen=Address.parse(listen),
        data_dir=data,
        durability=durability,
        default_partition_count=partitions,
        advertised=None if advertised is None else Address.parse(advertised),
        metrics_listen=None if metrics_listen is None else Address.parse(metrics_listen),
        metrics_public=metrics_public,
        security=SecurityConfig(
            users_file=users,
            sasl_mechanisms=None if sasl_mechanisms is None else _mechanisms(sasl_mechanisms),
            tls=_tls(tls_certificate, tls_key, tls_client_ca),
        ),
    )
    run_broker(config, lambda address: _announce(address, config))


def _mechanisms(text: str) -> tuple[SaslMechanism, ...]:
    # SecurityConfig refuses what is none of the names.
    return cast("tuple[SaslMechanism, ...]", tuple(name.strip().upper() for name in text.split(",")))


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> TlsConfig | None:
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("TLS needs both --tls-certificate and --tls-key")
    return TlsConfig(certificate=certificate, key=key, client_ca=client_ca)


def _announce(address: Address, config: BrokerConfig) -> None:
    gc.freeze()
    gc.enable()
    announce(f"broker listening on {address}, data in {config.data_dir}, durability {config.durability}")
