"""A small shop that writes to PostgreSQL, and to nothing else.

    python examples/shop/shop_generate.py --dsn postgresql://postgres@127.0.0.1/postgres --rate 20

It makes its tables where they are missing (schema.sql), fills an empty catalogue, and a history of orders
from before; then customers come: see shop_world.py. Each step is a transaction of its own. A database that
is away is waited for, and so is one that comes back in the middle: what the shop looks like is then read
anew, because whether the last transaction was committed is not known.

With `--control BOOTSTRAP` it listens to a topic by which a page moves its rate, and lets it make a mistake:
see shop_control.py. It never writes there, or to any store.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

import psycopg
from confluent_kafka import KafkaException
from psycopg import sql

from shop_catalogue import Product, catalogue
from shop_control import DELETE_PAST_LINES, MISTAKE_COUNT, Control, ControlReader, create_topic
from shop_world import Line, Offer, PastOrder, Shop, Step, World, past_orders

SCHEMA: Final = Path(__file__).with_name("schema.sql")
PRODUCT_COUNT: Final = 2_000
PAST_LINE_COUNT: Final = 12_000
RATE_MAX: Final = 10_000.0
BEHIND_S_MAX: Final = 2.0
"""Who can't write as fast as was asked for leaves out what should have been written longer ago than this."""
CONNECT_S_MAX: Final = 10
AWAY_S_MAX: Final = 120.0
"""How long a database may be away."""
RETRY_S: Final = 0.5
LISTEN_EVERY_S: Final = 0.2

Connection = psycopg.Connection[tuple[Any, ...]]


class Unreachable(Exception):
    """The database does not answer."""


class Shopkeeper:
    """Writes one step after the other until it is stopped."""

    def __init__(
        self,
        dsn: str,
        *,
        seed: int,
        announcements: list[Product],
        listen: Callable[[], Iterable[Control]] = tuple,
    ) -> None:
        self._dsn = dsn
        self._seed = seed
        self._announcements = announcements
        self._listen = listen
        self._stopped = False
        self.rate = 0.0
        self.step_count = 0

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Write no more. May be called by a signal."""
        self._stopped = True

    def keep(self, rate: float, count: int | None) -> None:
        """Write so many steps a second, and come back whenever the database was away."""
        self.rate = rate
        while not self._is_done(count):
            with connected(self._dsn) as connection:
                # Another seed after each time, or the same would happen again.
                seed = self._seed + self.step_count
                try:
                    world = World(read_shop(connection), seed, self._announcements)
                    self._work(connection, world, count)
                except psycopg.OperationalError as error:
                    print(f"the database is away: {first_line(error)}", file=sys.stderr, flush=True)
                    time.sleep(RETRY_S)

    def _work(self, connection: Connection, world: World, count: int | None) -> None:
        due_s, listen_s = time.monotonic(), 0.0
        while not self._is_done(count):
            if time.monotonic() >= listen_s:
                listen_s = time.monotonic() + LISTEN_EVERY_S
                self._obey(connection)
            due_s = max(due_s, time.monotonic() - BEHIND_S_MAX) + 1 / self.rate
            time.sleep(max(0.0, due_s - time.monotonic()))
            write(connection, world.step())
            self.step_count += 1

    def _obey(self, connection: Connection) -> None:
        """Do what was asked for since the last time."""
        for control in self._listen():
            self.rate = control.rate or self.rate
            if control.is_mistake:
                gone = connection.execute(DELETE_PAST_LINES, (MISTAKE_COUNT,)).rowcount
                print(f"deleted {gone} lines of orders by mistake", flush=True)

    def _is_done(self, count: int | None) -> bool:
        return self._stopped or (count is not None and self.step_count >= count)


def write(connection: Connection, step: Step) -> None:
    """Write a step, all of it or nothing."""
    with connection.transaction():
        for statement, values in step:
            connection.execute(statement.encode(), values)


def make_tables(dsn: str, *, seed: int, product_count: int, past_line_count: int) -> list[Product]:
    """Make what is missing, fill what is empty, and return the catalogue."""
    products = catalogue(seed, product_count)
    with connected(dsn) as connection, connection.transaction():
        connection.execute(SCHEMA.read_bytes())
        if connection.execute("SELECT 1 FROM products LIMIT 1").fetchone() is None:
            now = datetime.now(UTC)
            orders = past_orders(products, seed=seed, line_count=past_line_count, before=now)
            _fill(connection, products, orders)
    return products


def _fill(connection: Connection, products: list[Product], orders: list[PastOrder]) -> None:
    with connection.cursor() as cursor:
        with cursor.copy(
            "COPY products (product_id, name, description, category, price, stock) FROM STDIN"
        ) as copy:
            for one in products:
                copy.write_row(
                    (one.product_id, one.name, one.description, one.category, one.price, one.stock)
                )
        with cursor.copy("COPY orders (order_id, customer, status, placed_at, total) FROM STDIN") as copy:
            for order in orders:
                copy.write_row((order.order_id, order.customer, "shipped", order.placed_at, order.total))
        with cursor.copy("COPY order_lines (order_id, line, product_id, quantity, price) FROM STDIN") as copy:
            for order in orders:
                for number, (product_id, line) in enumerate(order.lines, 1):
                    copy.write_row((order.order_id, number, product_id, line.quantity, line.price))


def read_shop(connection: Connection) -> Shop:
    """What the shop looks like, all of it at one moment."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        announced = {
            product_id
            for (product_id,) in connection.execute(
                "SELECT product_id FROM products p WHERE stock = 0 "
                "AND NOT EXISTS (SELECT FROM order_lines l WHERE l.product_id = p.product_id) "
                "AND NOT EXISTS (SELECT FROM cart_lines l WHERE l.product_id = p.product_id)"
            )
        }
        offers = {
            product_id: Offer(price=price, stock=stock)
            for product_id, price, stock in connection.execute(
                "SELECT product_id, price, stock FROM products"
            )
            if product_id not in announced
        }
        carts: dict[int, dict[int, Line]] = {
            cart_id: {} for (cart_id,) in connection.execute("SELECT cart_id FROM carts ORDER BY cart_id")
        }
        for cart_id, product_id, quantity, price in connection.execute(
            "SELECT cart_id, product_id, quantity, price FROM cart_lines"
        ):
            carts[cart_id][product_id] = Line(quantity=quantity, price=price)
        orders = {
            int(order_id): str(status)
            for order_id, status in connection.execute(
                "SELECT order_id, status FROM orders WHERE status IN ('placed', 'paid') ORDER BY order_id"
            )
        }
        return Shop(
            offers=offers,
            announced=sorted(announced),
            carts=carts,
            orders=orders,
            next_cart_id=_next(connection, "cart_id", "carts"),
            next_order_id=_next(connection, "order_id", "orders"),
            next_product_id=_next(connection, "product_id", "products"),
        )


def _next(connection: Connection, column: str, table: str) -> int:
    question = sql.SQL("SELECT coalesce(max({}), 0) + 1 FROM {}")
    found = connection.execute(question.format(sql.Identifier(column), sql.Identifier(table))).fetchone()
    assert found is not None
    return int(found[0])


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    """A connection, which a database that is away is waited for."""
    deadline_s = time.monotonic() + AWAY_S_MAX
    while True:
        try:
            connection = psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_S_MAX)
            break
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline_s:
                raise Unreachable(first_line(error)) from error
            time.sleep(RETRY_S)
    with connection:
        yield connection


def first_line(error: Exception) -> str:
    """What an error says, without what else PostgreSQL's client has to tell."""
    return str(error).strip().partition("\n")[0]


def main() -> None:
    """Read the options, make the tables, write."""
    options = _options()
    try:
        products = make_tables(
            options.dsn,
            seed=options.seed,
            product_count=options.products,
            past_line_count=options.past_lines,
        )
        if options.control:
            create_topic(options.control)
        if options.tables_only:
            return
        listen: Callable[[], Iterable[Control]] = (
            ControlReader(options.control).read if options.control else tuple
        )
        keeper = Shopkeeper(options.dsn, seed=options.seed, announcements=products, listen=listen)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, keeper.stop)
        print(f"producing {options.rate:g} transactions a second in PostgreSQL", flush=True)
        keeper.keep(options.rate, options.count)
    except (Unreachable, psycopg.Error) as error:
        sys.exit(f"error: the shop can't write to its database: {first_line(error)}")
    except KafkaException as error:
        sys.exit(f"error: the broker at {options.control} does not answer: {error.args[0].str()}")
    print(f"produced {keeper.step_count} transactions", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Write carts, orders and products to PostgreSQL.")
    add = parser.add_argument
    dsn = os.environ.get("HEADRACE_POSTGRES")
    add("--dsn", default=dsn, required=dsn is None, help="the database (HEADRACE_POSTGRES)")
    add("--rate", type=_rate, default=20.0, help="transactions a second (%(default)s)")
    add("--seed", type=int, default=7, help="the same seed makes the same catalogue (%(default)s)")
    add("--count", type=int, help="stop after so many transactions")
    add("--products", type=int, default=PRODUCT_COUNT, help="in an empty catalogue (%(default)s)")
    add("--past-lines", type=int, default=PAST_LINE_COUNT, help="lines of orders from before (%(default)s)")
    add("--control", metavar="BOOTSTRAP", help="a broker on which to listen to what a page asks for")
    add("--tables-only", action="store_true", help="make and fill the tables, then stop")
    return parser.parse_args()


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"must be above 0, and at most {RATE_MAX:g}")
    return value


if __name__ == "__main__":
    main()
