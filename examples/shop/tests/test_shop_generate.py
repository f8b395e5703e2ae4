"""The program that writes to PostgreSQL, and to nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually
from shop_generate import Shopkeeper, connected, make_tables, read_shop

WITHIN_S = 120.0
GENERATE = Path(__file__).parents[1] / "shop_generate.py"
SMALL = ("--products", "40", "--past-lines", "100")


@contextmanager
def generate(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The program, until the block ends."""
    command = [sys.executable, str(GENERATE), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_program_fills_the_tables_once_and_then_writes_what_it_was_asked_for(
    headrace_postgres: TestDatabase,
) -> None:
    for _ in range(2):
        with generate("--dsn", headrace_postgres.dsn, *SMALL, "--tables-only") as process:
            assert process.communicate(timeout=WITHIN_S) == ("", "")
        assert process.returncode == 0
    assert headrace_postgres.execute("SELECT count(*) FROM products") == [(40,)]
    [(past_lines, past_orders)] = headrace_postgres.execute(
        "SELECT count(*), count(DISTINCT order_id) FROM order_lines"
    )
    assert past_lines >= 100

    with generate("--dsn", headrace_postgres.dsn, *SMALL, "--rate", "10000", "--count", "500") as process:
        output, errors = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "produced 500 transactions"
    [(orders,)] = headrace_postgres.execute("SELECT count(*) FROM orders")
    assert orders > past_orders
    assert headrace_postgres.execute(
        "SELECT count(*) FROM orders o WHERE total <> "
        "(SELECT sum(quantity * price) FROM order_lines l WHERE l.order_id = o.order_id)"
    ) == [(0,)]


def test_a_shop_that_is_closed_and_opened_again_knows_what_is_in_its_tables(
    headrace_postgres: TestDatabase,
) -> None:
    products = make_tables(headrace_postgres.dsn, seed=3, product_count=40, past_line_count=50)
    for seed in (3, 4, 5):
        # Steps that don't fit the tables would be refused by them.
        Shopkeeper(headrace_postgres.dsn, seed=seed, announcements=products).keep(10_000, 300)
    with connected(headrace_postgres.dsn) as connection:
        shop = read_shop(connection)

    assert len(shop.offers) == 40
    [(count,)] = headrace_postgres.execute("SELECT count(*) FROM products")
    assert count == 40 + len(shop.announced)
    assert shop.next_order_id > len(shop.orders)


def test_a_connection_that_is_cut_is_made_anew_and_sigterm_ends_the_program(
    headrace_postgres: TestDatabase,
) -> None:
    def order_count() -> int:
        [(count,)] = headrace_postgres.execute("SELECT count(*) FROM orders")
        return int(count)

    with generate("--dsn", headrace_postgres.dsn, *SMALL, "--rate", "500") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("producing 500 transactions a second")
        begun = order_count()
        eventually(lambda: order_count() > begun, within_s=WITHIN_S)
        headrace_postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        cut = order_count()
        eventually(lambda: order_count() > cut + 5, within_s=WITHIN_S)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 0
    assert output.startswith("produced ")
    assert errors.startswith("the database is away: ")


def test_a_database_that_refuses_is_told_in_a_sentence(headrace_postgres: TestDatabase) -> None:
    headrace_postgres.execute("CREATE TABLE products (product_id text)")
    with generate("--dsn", headrace_postgres.dsn) as process:
        _output, errors = process.communicate(timeout=WITHIN_S)

    assert process.returncode == 1
    assert errors.startswith("error: the shop can't write to its database: ")
    assert errors.count("\n") == 1
