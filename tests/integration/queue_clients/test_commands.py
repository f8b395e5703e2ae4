"""`headrace queues` at work, on the embedded server and on RabbitMQ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.app import new_app
from headrace.errors import ConfigError, QueueServerRefused

Run = Callable[..., Result]


@pytest.fixture
def run(queues: Any) -> Run:
    """Runs a command of `headrace queues` in this process."""

    def run(*arguments: str, stdin: str = "", fails: bool = False) -> Result:
        result = CliRunner().invoke(
            new_app(["queues"]), ["queues", *arguments, "--url", queues.url], input=stdin
        )
        assert fails or result.exit_code == 0, (result.output, result.exception)
        return result

    return run


def test_a_queue_is_declared_filled_looked_at_emptied_and_deleted(run: Run, name: str) -> None:
    run("declare", name)
    assert json.loads(run("publish", name, "--json", stdin="1\n2\n3\n").stdout) == {"confirmed": 3}
    run("publish", name, "four", "five", "--header", "tenant=acme", "--content-type", "text/plain")
    [row] = json.loads(run("list", name, "--json").stdout)
    assert (row["queue"], row["ready"], row["consumers"]) == (name, 5, 0)
    assert run("get", name, "--count", "3").stdout.splitlines() == ["1", "2", "3"]
    assert run("get", name, "--count", "9", "--ack").stdout.splitlines() == ["1", "2", "3", "four", "five"]
    assert run("get", name).stdout == ""
    run("publish", name, "x")
    assert json.loads(run("purge", name, "--yes", "--json").stdout)["removed"] == 1
    run("publish", name, "y")
    assert json.loads(run("delete", name, "--yes", "--json").stdout)["messages"] == 1
    assert isinstance(run("list", name, fails=True).exception, ConfigError)


def test_everything_of_a_message_is_shown_as_json(run: Run, name: str) -> None:
    run("declare", name)
    run("publish", name, "x", "--header", "tenant=acme", "--content-type", "text/plain")
    shown = json.loads(run("get", name, "--json").stdout)
    assert shown["message_id"]
    assert {key: shown[key] for key in ("body", "headers", "content_type", "redelivered", "routing_key")} == {
        "body": "x",
        "headers": {"tenant": "acme"},
        "content_type": "text/plain",
        "redelivered": False,
        "routing_key": name,
    }


def test_an_exchange_is_made_and_feeds_a_queue(run: Run, name: str) -> None:
    run("declare", name)
    run("bind", name, f"{name}.x", "--key", "order.*", "--exchange-type", "topic")
    run("publish", "order.new", "1", "--exchange", f"{name}.x")
    refused = run("publish", "invoice.new", "2", "--exchange", f"{name}.x", fails=True)
    assert isinstance(refused.exception, QueueServerRefused)
    assert run("get", name, "--count", "2").stdout.splitlines() == ["1"]


def test_dead_letters_are_previewed_and_sent_back(run: Run, queues: Any, name: str) -> None:
    run("declare", name, "--dead-letters", f"{name}.dead")
    run("publish", name, stdin='{"amount": 5}\n{"amount": 500}\n')
    queues.kill_letters(name, 2)
    preview = run("redrive", f"{name}.dead", "--dry-run")
    assert "rejected" in preview.stdout
    assert "nothing was moved" in preview.stderr
    lines = run("redrive", f"{name}.dead", "--where", "@.amount > 100", "--yes", "--json").stdout.splitlines()
    assert json.loads(lines[0])["letter"]["preview"] == '{"amount": 500}'
    assert json.loads(lines[1])["moved"] == 1
    assert run("get", name).stdout == '{"amount": 500}\n'
    assert run("get", f"{name}.dead").stdout == '{"amount": 5}\n'


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_who_looks_at_messages_whose_deliveries_are_counted_is_warned(run: Run, name: str) -> None:
    run("declare", name, "--argument", "x-delivery-limit=5")
    run("publish", name, "1")
    preview = ("redrive", name, "--dry-run", "--to", f"{name}.work")
    for look in (("get", name), preview):
        assert "x-delivery-limit=5" in run(*look).stderr
    assert "x-delivery-limit=5" in json.loads(run(*preview, "--json").stdout.splitlines()[-1])["warning"]
    run("declare", f"{name}.work")
    assert "warning" not in run("redrive", name, "--yes", "--to", f"{name}.work").stderr
    assert run("get", f"{name}.work").stderr == ""
    assert run("get", name, "--ack").stderr == ""


def test_nothing_is_removed_without_being_asked_for(run: Run, queues: Any, name: str) -> None:
    run("declare", name)
    run("publish", name, "x")
    for command in ("purge", "delete"):
        assert run(command, name, stdin="n\n", fails=True).exit_code == 1
    assert run("redrive", name, stdin="n\n", fails=True).exit_code == 1
    assert queues.count(name) == 1


def test_a_queue_that_is_declared_otherwise_is_refused(run: Run, name: str) -> None:
    run("declare", name, "--argument", "x-max-length=5")
    run("declare", name, "--argument", "x-max-length=5")
    refused = run("declare", name, fails=True).exception
    assert isinstance(refused, QueueServerRefused)
    assert refused.reply_code == 406


@pytest.mark.parametrize("command", ["get", "purge", "delete", "redrive"])
def test_a_queue_that_is_not_there_is_said(run: Run, name: str, command: str) -> None:
    arguments = [] if command == "get" else ["--yes"]
    assert "there is no queue" in str(run(command, name, *arguments, fails=True).exception)


def test_the_embedded_server_lists_all_its_queues_by_amqp(
    embedded_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_QUEUES", embedded_url)
    runner = CliRunner()
    app = new_app(["queues"])
    runner.invoke(app, ["queues", "declare", name, "--argument", "x-max-length=9"])
    runner.invoke(app, ["queues", "publish", name, "x", "yy"])
    rows = json.loads(runner.invoke(app, ["queues", "list", "--json"]).stdout)
    [row] = [each for each in rows if each["queue"] == name]
    assert (row["ready"], row["unacknowledged"], row["bytes"], row["published"]) == (2, 0, 3, 2)
    assert (row["durable"], row["arguments"]) == (True, {"x-max-length": 9})
    assert row["oldest_age_ms"] >= 0


def test_the_embedded_server_lists_dead_letters_that_no_queue_took(
    embedded_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_QUEUES", embedded_url)
    runner = CliRunner()
    app = new_app(["queues"])
    limits = ["--argument", "x-max-length=1", "--argument", "x-dead-letter-exchange=nowhere"]
    runner.invoke(app, ["queues", "declare", name, *limits])
    runner.invoke(app, ["queues", "publish", name, "x", "y", "z"])
    [row] = json.loads(runner.invoke(app, ["queues", "list", name, "--json"]).stdout)
    assert (row["dead_lettered"], row["dead_letters_dropped"]) == (0, {"no_exchange": 2})


def test_what_is_removed_is_written_down_with_who_did_it(
    embedded_url: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headrace.audit")
    for arguments in (
        ("declare", name),
        ("publish", name, "x"),
        ("purge", name, "-y"),
        ("delete", name, "-y"),
    ):
        CliRunner().invoke(new_app(["queues"]), ["queues", *arguments, "--url", embedded_url])
    lines = [each.getMessage() for each in caplog.records if name in each.getMessage()]
    assert [line.partition(", by guest from 127.0.0.1:")[0] for line in lines] == [
        f"queue.purge queue={name} messages=1",
        f"queue.delete queue={name} messages=0",
    ]


@pytest.mark.rabbitmq
def test_rabbitmq_has_to_be_told_the_names_or_asked_by_http(rabbitmq_url: str) -> None:
    refused = CliRunner().invoke(new_app(["queues"]), ["queues", "list", "--url", rabbitmq_url]).exception
    assert "--management" in str(refused)
