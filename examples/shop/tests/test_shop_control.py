"""What a page asks of the shop, on a real broker."""

from __future__ import annotations

from contextlib import closing

import psycopg
from confluent_kafka import Producer

import headrace
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually
from shop_control import CONTROL, Control, ControlReader, create_topic
from shop_generate import Shopkeeper, make_tables

MISTAKE = Control(is_mistake=True)


def ask(broker: headrace.Broker, key: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(CONTROL, value, key)
    assert producer.flush(60) == 0


def asked(broker: headrace.Broker, last: Control) -> list[Control]:
    """What a shop is asked for that opens now, up to this."""
    found: list[Control] = []
    with closing(ControlReader(broker.bootstrap)) as reader:

        def is_read() -> bool:
            found.extend(reader.read())
            return last in found

        eventually(is_read)
    return found


def test_a_mistake_that_was_asked_for_before_the_shop_opened_is_made_and_never_again(
    headrace_broker: headrace.Broker,
) -> None:
    create_topic(headrace_broker.bootstrap)
    ask(headrace_broker, "mistake", '{"pressed_ms": 1}')
    ask(headrace_broker, "world", '{"rate": 7}')
    assert asked(headrace_broker, Control(rate=7.0)) == [MISTAKE, Control(rate=7.0)]
    # A shop that was closed, or killed, opens again.
    assert asked(headrace_broker, Control(rate=7.0)) == [Control(rate=7.0)]
    ask(headrace_broker, "mistake", '{"pressed_ms": 2}')
    assert asked(headrace_broker, MISTAKE)[-1] == MISTAKE


def test_a_rate_that_was_asked_for_is_kept_when_the_database_was_away(
    headrace_postgres: TestDatabase,
) -> None:
    products = make_tables(headrace_postgres.dsn, seed=3, product_count=40, past_line_count=50)
    rates: list[float] = []

    def listen() -> list[Control]:
        rates.append(keeper.rate)
        if len(rates) == 2:
            raise psycopg.OperationalError("away")
        return [Control(rate=500.0)] if len(rates) == 1 else []

    keeper = Shopkeeper(headrace_postgres.dsn, seed=3, announcements=products, listen=listen)
    keeper.keep(50, 200)
    assert rates[:3] == [50, 500, 500]
