"""`headrace events` as a user types it, on the bank's store in PostgreSQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bank_accounts import Deposit, Open, Withdraw
from bank_generate import Bank, HistoryClock

if TYPE_CHECKING:
    from tests.acceptance.conftest import CommandLine

    from headrace.testing.postgres import TestDatabase

BANK = Path(__file__).parents[3] / "examples" / "bank" / "bank.py"
ACCOUNT = f"{BANK}:Account"


@pytest.fixture
def events(command_line: CommandLine, headrace_postgres: TestDatabase) -> CommandLine:
    """Commands that find a store with two accounts."""
    clock = HistoryClock()
    bank = Bank(headrace_postgres.dsn, clock)
    for month, name, command in [
        (1, "account-1", Open(customer="c-1", owner="Ada Brandt", address="1 Mill Lane", at=at(1))),
        (2, "account-1", Deposit(cents=1_000_00, at=at(2))),
        (2, "account-2", Open(customer="c-2", owner="Björn Dahl", address="2 Mill Lane", at=at(2))),
        (4, "account-1", Withdraw(cents=400_00, at=at(4))),
        *((5, "account-1", Withdraw(cents=1_00, at=at(5))) for _ in range(5)),
    ]:
        clock.now = at(month)
        bank.store.execute(name, command)
    bank.read_models.catch_up()
    bank.close()
    command_line.variables["HEADRACE_POSTGRES"] = headrace_postgres.dsn
    return command_line


def at(month: int) -> datetime:
    return datetime(2026, month, 15, tzinfo=UTC)


def asked(command_line: CommandLine, *arguments: str) -> Any:
    return json.loads(command_line.output("events", *arguments, "--json"))


def test_streams_and_events_are_listed_and_what_is_personal_stays_encrypted(events: CommandLine) -> None:
    assert [(each["stream"], each["version"]) for each in asked(events, "streams")] == [
        ("account-1", 9),
        ("account-2", 1),
    ]
    assert "account-2" in events.output("events", "streams", "--after", "account-1", "--category", "account")
    opened, deposited, *_ = asked(events, "read", "account-1")
    assert "$sealed" in opened["data"]["owner"]
    assert deposited["data"]["cents"] == 1_000_00
    assert [each["position"] for each in asked(events, "read", "--tag", "customer:c-2")] == [3]
    withdrawn = asked(events, "read", "--type", "MoneyWithdrawn", "--after", "4", "--count", "2")
    assert [each["position"] for each in withdrawn] == [5, 6]
    table = events.run("events", "read", "--count", "1")
    assert "AccountOpened" in table.stdout
    assert "Ada" not in table.stdout
    assert "--after 1" in table.stderr


def test_the_state_is_shown_as_it_is_and_as_it_was(events: CommandLine) -> None:
    assert asked(events, "state", ACCOUNT, "account-1")["state"]["balance_cents"] == 594_50
    assert (
        asked(events, "state", ACCOUNT, "account-1", "--as-of", "2026-03-01")["state"]["balance_cents"]
        == 1_000_00
    )
    assert asked(events, "state", ACCOUNT, "account-1", "--version", "1")["state"]["balance_cents"] == 0
    assert asked(events, "state", ACCOUNT, "account-1", "--position", "4")["state"]["balance_cents"] == 600_00
    shown = events.output("events", "state", ACCOUNT, "account-1")
    assert "balance_cents" in shown
    assert "Ada Brandt" in shown


def test_each_field_is_explained_by_its_event(events: CommandLine) -> None:
    causes = {
        each["field"]: each["type"] for each in asked(events, "explain", ACCOUNT, "account-1")["changes"]
    }
    assert causes["balance_cents"] == "FeeCharged"
    assert causes["owner"] == "AccountOpened"
    changes = asked(events, "explain", ACCOUNT, "account-1", "--field", "balance_cents")["changes"]
    assert [each["value"] for each in changes][:2] == [1_000_00, 600_00]
    assert "FeeCharged" in events.output("events", "explain", ACCOUNT, "account-1")


def test_code_is_checked_and_compared_and_a_read_model_built_anew(events: CommandLine) -> None:
    versions = {(each["type"], each["version"]): each["events"] for each in asked(events, "versions")}
    assert versions["AccountOpened", 2] == 2
    assert asked(events, "check", str(BANK))["readable"] is True
    compared = asked(events, "compare", str(BANK), "Account", "AccountWithoutFees")
    assert compared["differences"] == [
        {"stream": "account-1", "field": "balance_cents", "left": 594_50, "right": 595_00}
    ]
    assert asked(events, "rebuild", f"{BANK}:balances")["generation"] == 2


def test_somebody_is_forgotten_after_a_question(events: CommandLine) -> None:
    asked_first = events.run("events", "forget", "c-1", stdin="n\n")
    assert asked_first.returncode == 1
    assert "Destroy the key of c-1?" in asked_first.stderr
    assert asked(events, "state", ACCOUNT, "account-1")["state"]["owner"] == "Ada Brandt"
    receipt = asked(events, "forget", "c-1", "--yes")
    assert (receipt["streams"], receipt["event_count"], receipt["is_repeat"]) == (["account-1"], 1, False)
    assert (receipt["check"]["is_key_destroyed"], receipt["check"]["readable_positions"]) == (True, [])
    assert asked(events, "state", ACCOUNT, "account-1")["state"]["owner"] is None
    assert asked(events, "forget", "c-1", "--yes")["is_repeat"] is True
    # What stands in clear all the same is named: here the name of a stream.
    check = asked(events, "forget", "c-1", "--yes", "--text", "account-1")["check"]
    assert check["readable_positions"]
    assert check["is_forgotten"] is False
    told = events.run("events", "forget", "c-1", "--yes", "--text", "account-1").stderr
    assert "The check has found: events show something at " in told


def test_what_can_not_be_is_a_sentence(events: CommandLine, tmp_path: Path) -> None:
    assert "FILE:DECIDER" in events.refusal("events", "state", str(BANK), "account-1", code=2)
    assert "has no decider 'Acount'" in events.refusal(
        "events", "state", f"{BANK}:Acount", "account-1", code=2
    )
    assert "there is no file" in events.refusal("events", "check", "nowhere.py", code=2)
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "has no decider" in events.refusal("events", "check", "empty.py", code=2)
    (tmp_path / "broken.py").write_text("x = 1\ny = 1 / 0\n")
    assert "line 2: ZeroDivisionError" in events.refusal("events", "check", "broken.py", code=2)
    (tmp_path / "little.py").write_text(LITTLE)
    assert "version 2 of AccountOpened" in events.refusal("events", "check", "little.py", code=2)
    assert "say one of" in events.refusal(
        "events", "state", ACCOUNT, "account-1", "--version", "1", "--position", "1", code=2
    )
    assert "is not a moment" in events.refusal(
        "events", "state", ACCOUNT, "account-1", "--as-of", "soon", code=2
    )
    assert "no read model 'Account'" in events.refusal("events", "rebuild", ACCOUNT, code=2)
    assert "no event store in its schema other" in events.refusal(
        "events", "streams", "--schema", "other", code=2
    )
    assert "does not answer" in events.refusal(
        "events", "streams", "--dsn", "postgresql://nobody@127.0.0.1:1/x", code=1
    )
    events.variables["HEADRACE_POSTGRES"] = ""
    assert "which database?" in events.refusal("events", "streams", code=2)


LITTLE = """
from dataclasses import dataclass

from headrace import events


@dataclass(frozen=True)
class Happened:
    what: str


@events.decider("account")
class Account:
    initial = None

    @staticmethod
    def decide(state: None, command: object) -> list[Happened]:
        return []

    @staticmethod
    def evolve(state: None, event: Happened) -> None:
        return None
"""
