"""Connections to PostgreSQL that are lent and given back; what is lent here is no real one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from headrace.errors import EventsError, StoreUnavailable
from headrace.events.postgres import connections as module
from headrace.events.postgres.connections import Connections

DSN = "postgresql://user:secret@nowhere:1/db"


@dataclass(eq=False)
class Made:
    """What a connection is to those who lend it."""

    status: TransactionStatus = TransactionStatus.IDLE
    is_alive: bool = True
    is_closed: bool = False

    @property
    def pgconn(self) -> Made:
        return self

    @property
    def transaction_status(self) -> TransactionStatus:
        return TransactionStatus.UNKNOWN if self.is_closed else self.status

    def execute(self, query: str) -> None:
        if not self.is_alive:
            raise psycopg.OperationalError(f"{query}: the server is gone")

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Server:
    """Makes connections, or fails."""

    made: list[Made] = field(default_factory=list)
    is_down: bool = False

    def connect(self, dsn: str) -> Any:
        if self.is_down:
            raise StoreUnavailable(f"{dsn} is down")
        self.made.append(Made())
        return self.made[-1]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(module, "connect", server.connect)
    return server


@pytest.fixture
def with_idle(server: Server, monkeypatch: pytest.MonkeyPatch) -> Connections:
    """One of them was idle for too long to be relied on."""
    connections = Connections(DSN)
    with connections.lent("reading"):
        pass
    monkeypatch.setattr(module, "IDLE_S_MAX", -1.0)
    return connections


def test_one_that_was_given_back_is_lent_again(server: Server) -> None:
    connections = Connections(DSN)

    with connections.lent("reading") as first:
        pass
    with connections.lent("reading") as second:
        assert second is first

    assert len(server.made) == 1


def test_one_on_which_a_transaction_is_open_is_closed(server: Server) -> None:
    connections = Connections(DSN)

    with connections.lent("reading"):
        server.made[0].status = TransactionStatus.INTRANS
    with connections.lent("reading"):
        pass

    assert [each.is_closed for each in server.made] == [True, False]


def test_one_that_was_idle_for_long_is_lent_only_if_it_is_alive(
    server: Server, with_idle: Connections
) -> None:
    with with_idle.lent("reading"):
        assert len(server.made) == 1
    server.made[0].is_alive = False
    with with_idle.lent("reading"):
        assert len(server.made) == 2

    assert [each.is_closed for each in server.made] == [True, False]


def test_who_needs_one_too_many_waits_until_one_is_given_back(server: Server) -> None:
    connections = Connections(DSN, size_max=1)
    entered = threading.Event()

    def borrow() -> None:
        with connections.lent("reading"):
            entered.set()

    with connections.lent("reading"):
        thread = threading.Thread(target=borrow)
        thread.start()
        assert not entered.wait(0.05)
    thread.join(10)

    assert entered.is_set()
    assert len(server.made) == 1


def test_who_waits_for_too_long_is_told_so_without_the_password(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S_MAX", 0.01)
    connections = Connections(DSN, size_max=1)

    with (
        connections.lent("reading"),
        pytest.raises(StoreUnavailable, match="appending: no connection was free") as error,
        connections.lent("appending"),
    ):
        pass

    assert "secret" not in str(error.value)
    with connections.lent("appending"):
        assert len(server.made) == 1


def test_a_server_that_is_down_takes_no_place(server: Server) -> None:
    connections = Connections(DSN, size_max=1)
    server.is_down = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable), connections.lent("reading"):
            pass

    server.is_down = False
    with connections.lent("reading"):
        assert len(server.made) == 1


def test_who_is_interrupted_before_the_end_of_a_block_takes_no_place_for_good(server: Server) -> None:
    connections = Connections(DSN, size_max=1)

    lent = connections.lent("reading")
    lent.__enter__()
    del lent

    with connections.lent("reading"):
        assert len(server.made) == 1


def test_who_is_interrupted_while_giving_back_takes_no_place_for_good(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(DSN, size_max=1)

    def interrupted(_: Made) -> TransactionStatus:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt), connections.lent("reading"):
        patched.setattr(Made, "transaction_status", property(interrupted))

    assert server.made[0].is_closed
    with connections.lent("reading"):
        assert len(server.made) == 2


def test_one_that_is_found_dead_while_all_are_closed_is_not_replaced(
    server: Server, with_idle: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(_: Made, query: str) -> None:
        with_idle.close()
        raise psycopg.OperationalError(f"{query}: the server is gone")

    monkeypatch.setattr(Made, "execute", dies)
    with pytest.raises(EventsError, match="the journal is closed"), with_idle.lent("reading"):
        pass

    assert len(server.made) == 1


def test_the_database_s_errors_are_told_in_our_words_and_all_others_as_they_are(server: Server) -> None:
    connections = Connections(DSN)

    told = "reading failed on PostgreSQL user@nowhere:1/db: it broke"
    with pytest.raises(StoreUnavailable, match=told), connections.lent("reading"):
        raise psycopg.OperationalError("it broke")
    with pytest.raises(ZeroDivisionError), connections.lent("reading"):
        raise ZeroDivisionError

    assert len(server.made) == 1


def test_when_it_is_closed_all_are_closed_and_none_is_lent_any_more(server: Server) -> None:
    connections = Connections(DSN)
    with connections.lent("reading"):
        with connections.lent("reading"):
            pass
        connections.close()
        assert [each.is_closed for each in server.made] == [False, True]

    assert [each.is_closed for each in server.made] == [True, True]
    with pytest.raises(EventsError, match="the journal is closed"), connections.lent("reading"):
        pass
