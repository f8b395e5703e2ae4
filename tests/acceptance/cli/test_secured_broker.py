"""`headrace users` and a broker that asks for them, logs as JSON, and serves metrics."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.conftest import CommandLine


def client_config(directory: Path, password: str) -> str:
    path = directory / "client.properties"
    settings = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=ann")
    path.write_text("\n".join((*settings, f"sasl.password={password}")))
    return str(path)


def test_users_are_added_listed_and_removed(command_line: CommandLine) -> None:
    command_line.output("users", "add", "ann", stdin="secret\n")
    command_line.variables["HEADRACE_PASSWORD"] = "other"
    command_line.output("users", "add", "bob")
    listed = json.loads(command_line.output("users", "list", "--json"))
    assert [(each["user"], each["mechanisms"]) for each in listed] == [
        ("ann", ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
        ("bob", ["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    ]
    command_line.output("users", "remove", "ann")
    assert command_line.output("users", "list").splitlines()[1].split()[0] == "bob"
    content = (command_line.directory / "data" / "users.json").read_text()
    assert "other" not in content


def test_what_is_wrong_with_a_user_is_said_in_one_sentence(command_line: CommandLine) -> None:
    assert "password is empty" in command_line.refusal("users", "add", "ann", stdin="\n", code=2)
    assert "is not a user name" in command_line.refusal("users", "add", "a b", stdin="x\n", code=2)
    assert "there is no user ann" in command_line.refusal("users", "remove", "ann", code=2)


def test_a_broker_beyond_loopback_says_what_it_needs(command_line: CommandLine) -> None:
    everywhere = "0.0.0.0:0"  # that is the test
    refused = command_line.refusal("broker", "--listen", everywhere, code=2)
    assert "headrace users add" in refused
    assert "--tls-client-ca" in refused
    command_line.output("users", "add", "ann", stdin="secret\n")
    plain = ("--users", "data/users.json", "--sasl-mechanisms", "plain")
    assert "in the clear" in command_line.refusal("broker", "--listen", everywhere, *plain, code=2)
    assert "both --tls-certificate and --tls-key" in command_line.refusal(
        "broker", "--tls-certificate", "x.pem", code=2
    )


def test_commands_use_a_secured_broker_and_a_wrong_password_is_refused(command_line: CommandLine) -> None:
    command_line.output("users", "add", "ann", stdin="secret\n")
    with command_line.broker("--users", "data/users.json"):
        right = client_config(command_line.directory, "secret")
        command_line.output("--client-config", right, "produce", "orders", stdin="hello\n")
        read = ("consume", "orders", "--from-beginning", "--until-end")
        assert command_line.output("--client-config", right, *read) == "hello\n"
        wrong = client_config(command_line.directory, "guessed")
        refused = command_line.refusal("--client-config", wrong, "topics", "list", code=2)
        assert "the user or the password is wrong" in refused


def test_a_broker_logs_as_json_serves_metrics_and_ends_with_code_0(command_line: CommandLine) -> None:
    options = ("--log-format", "json", "--metrics-listen", "127.0.0.1:0")
    log = command_line.directory / "log"
    with log.open("w") as stderr, command_line.broker(*options, stderr=stderr) as process:
        command_line.output("topics", "create", "orders")
        command_line.output("topics", "delete", "orders", "--yes")
        events = [json.loads(line) for line in log.read_text().splitlines()]
        (address,) = [each["address"] for each in events if "metrics on" in each["message"]]
        with httpx.Client(trust_env=False) as client:
            text = client.get(f"http://{address}/metrics").text
        assert re.search(r'headrace_request_duration_seconds_count\{api="DeleteTopics"\} 1', text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    audited = [each for each in events if each["logger"] == "headrace.audit"]
    assert [(each["action"], each["topic"]) for each in audited] == [
        ("topic.create", "orders"),
        ("topic.delete", "orders"),
    ]
