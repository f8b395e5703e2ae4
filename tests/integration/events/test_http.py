"""The HTTP application on a real server, over PostgreSQL, asked by many at once."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import httpx
import uvicorn

from headrace.events import Decider, EventStore, Recorded, Refused, decider
from headrace.events.http import Settings, create_app, loopback_hosts, query
from headrace.events.postgres import PostgresJournal
from headrace.events.projections import PostgresPlace, PostgresWork, ReadModels, projection
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually

WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    cents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    cents: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ByAccount:
    account: str


@decider("account")
class _Account:
    initial = Balance()

    @staticmethod
    def decide(state: Balance, command: Deposit | Withdraw) -> list[Moved]:
        if isinstance(command, Deposit):
            return [Moved(cents=command.cents)]
        if command.cents > state.cents:
            raise Refused("insufficient funds")
        return [Moved(cents=-command.cents)]

    @staticmethod
    def evolve(state: Balance, event: Moved) -> Balance:
        return Balance(cents=state.cents + event.cents)


Account = cast("Decider", _Account)


@projection("balances", create="CREATE TABLE balances (account text PRIMARY KEY, cents bigint NOT NULL)")
def balances(work: PostgresWork, event: Recorded) -> None:
    work.execute(
        "INSERT INTO balances VALUES (%s, %s) ON CONFLICT (account) DO UPDATE "
        "SET cents = balances.cents + excluded.cents",
        (event.stream, event.data.cents),
    )


@contextmanager
def served(database: TestDatabase) -> Iterator[httpx.Client]:
    """A client of a server of its own, with a read model that runs."""

    @query("balance", projection="balances")
    def balance(asked: ByAccount) -> Balance | None:
        rows = database.execute("SELECT cents FROM balances WHERE account = %s", asked.account)
        return Balance(cents=rows[0][0]) if rows else None

    with (
        PostgresJournal(database.dsn) as journal,
        PostgresPlace(database.dsn) as place,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        port = listener.getsockname()[1]
        store = EventStore(journal, deciders=[Account])
        models = ReadModels(store, place, [balances])
        settings = Settings(hosts=loopback_hosts(port), wait_s=WITHIN_S)
        app = create_app(store, settings, read_models=models, queries=[balance])
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, http="h11", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")
        with models.running():
            thread.start()
            try:
                eventually(lambda: server.started, "the server's start")
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S) as client:
                    yield client
            finally:
                server.should_exit = True
                thread.join()


def test_of_many_who_withdraw_at_once_as_many_succeed_as_there_is_money_for(
    headrace_postgres: TestDatabase,
) -> None:
    with served(headrace_postgres) as client:
        assert client.post("/commands/account/1/Deposit", json={"cents": 50}).status_code == 200

        def withdraw(number: int) -> int:
            path, key = "/commands/account/1/Withdraw", {"Idempotency-Key": f"w{number % 10}"}
            return client.post(path, json={"cents": 10}, headers=key).status_code

        # Ten commands, each sent twice, and money for five.
        with ThreadPoolExecutor(6) as pool:
            answers = Counter(pool.map(withdraw, range(20)))
        assert set(answers) == {200, 409}
        state = client.get("/streams/account-1")
        assert (state.json()["state"], state.headers["etag"]) == ({"cents": 0}, '"6"')


def test_who_writes_reads_what_was_written(headrace_postgres: TestDatabase) -> None:
    with served(headrace_postgres) as client:
        for number in range(1, 6):
            made = client.post("/commands/account/7/Deposit", json={"cents": number}).json()
            asked = {"account": "account-7", "position": made["position"]}
            read = client.get("/queries/balance", params=asked)
            assert (read.status_code, read.json()) == (200, {"cents": sum(range(number + 1))})
        assert client.get("/openapi.json", headers={"Host": "evil.example"}).status_code == 403
        assert client.get("/projections").json()["projections"][0]["behind"] == 0
