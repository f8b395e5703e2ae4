"""What `headrace broker` is told, read with Typer and without it."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from headrace.cli.app import new_app
from headrace.cli.broker import broker
from headrace.cli.broker_options import BrokerOptions, read_options
from headrace.errors import ConfigError

VALUES = {
    "--data": ("somewhere", "/x y/z"),
    "--listen": ("127.0.0.1:0", "localhost:9"),
    "--amqp-listen": ("127.0.0.1:0", "127.0.0.1:5672"),
    "--durability": ("sync", "os"),
    "--partitions": ("1", "12"),
    "--users": ("users.json",),
    "--sasl-mechanisms": ("PLAIN", "scram-sha-256, SCRAM-SHA-512"),
    "--tls-certificate": ("cert.pem",),
    "--tls-key": ("key.pem",),
    "--tls-client-ca": ("ca.pem",),
    "--advertised": ("broker:9092",),
    "--metrics-listen": ("127.0.0.1:9404",),
    "--log-format": ("text", "json"),
    "--log-level": ("debug", "error"),
}
FLAGS = ("--metrics-public",)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[BrokerOptions]:
    """The options of brokers that would have been started."""
    monkeypatch.delenv("HEADRACE_CLIENT_CONFIG", raising=False)
    options: list[BrokerOptions] = []

    def note(asked: BrokerOptions) -> None:
        options.append(asked)

    monkeypatch.setattr(BrokerOptions, "run", note)
    return options


def test_all_options_are_known_to_both() -> None:
    names = {name.removeprefix("--").replace("-", "_") for name in (*VALUES, *FLAGS)}
    assert names == set(inspect.signature(broker).parameters) == {each.name for each in fields(BrokerOptions)}


def test_what_is_read_without_typer_is_what_typer_reads(started: list[BrokerOptions]) -> None:
    chance = Random(5)
    app = new_app(["broker"])
    for _ in range(60):
        names = chance.sample([*VALUES, *FLAGS], chance.randrange(len(VALUES) + 2))
        arguments: list[str] = []
        for name in names:
            arguments += (name, chance.choice(VALUES[name])) if name in VALUES else (name,)
        read = read_options(arguments)
        assert read is not None
        result = CliRunner().invoke(app, ["broker", *arguments])
        assert result.exit_code == 0, result.output
        assert started.pop() == read


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--listen"],
        ["--listen", ""],
        ["--listen", "--durability"],
        ["--listen=127.0.0.1:0"],
        ["listen", "127.0.0.1:0"],
        ["somewhere"],
        ["--partitions", "0"],
        ["--partitions", "many"],
        ["--durability", "maybe"],
        ["--log-level", "loud"],
        ["--data", "a", "--data", "b"],
        ["--tls_key", "key.pem"],
        ["--metrics-public", "yes"],
        ["--metrics-public", "--metrics-public"],
    ],
)
def test_what_is_not_plain_is_left_to_typer(arguments: list[str]) -> None:
    assert read_options(arguments) is None


def test_tls_needs_a_certificate_and_its_key() -> None:
    with pytest.raises(ConfigError, match="--tls-certificate and --tls-key"):
        BrokerOptions(tls_key=Path("key.pem")).config()
