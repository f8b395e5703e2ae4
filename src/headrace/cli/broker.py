"""`headrace broker`: the broker alone, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.broker_options import BrokerOptions
from headrace.cli.options import DataDir, LogFormatOption, LogLevelOption, MetricsPublic
from headrace.config import Durability

Listen = Annotated[str, typer.Option(help="Where to listen; port 0 picks a free one.")]
AmqpListen = Annotated[
    str | None,
    typer.Option(help="Serve work queues as well, to clients of AMQP 0-9-1: 127.0.0.1:5672 for example."),
]
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


def broker(
    data: DataDir,
    listen: Listen = "127.0.0.1:9092",
    amqp_listen: AmqpListen = None,
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
    """Run the broker until Ctrl-C. Kafka clients can use it, and with --amqp-listen those of AMQP, too."""
    BrokerOptions(
        data=data,
        listen=listen,
        amqp_listen=amqp_listen,
        durability=durability,
        partitions=partitions,
        users=users,
        sasl_mechanisms=sasl_mechanisms,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        advertised=advertised,
        metrics_listen=metrics_listen,
        metrics_public=metrics_public,
        log_format=log_format,
        log_level=log_level,
    ).run()
