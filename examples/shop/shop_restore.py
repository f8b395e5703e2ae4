"""Insert the lines of orders that are missing, from a copy of the table as it was: see shop_recovery.py.

    python examples/shop/shop_restore.py --dry-run
    python examples/shop/shop_restore.py

What is there stays as it is. Lines of orders that have been deleted since are not inserted: they would belong
to nothing. The copy is dropped afterwards: the log can make it again. All of it is one transaction.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final

import psycopg

COUNT: Final = """
    SELECT count(*) FROM recovery.order_lines past JOIN orders USING (order_id)
    WHERE NOT EXISTS (
        SELECT FROM order_lines present WHERE (present.order_id, present.line) = (past.order_id, past.line)
    )
"""
INSERT: Final = """
    INSERT INTO order_lines (order_id, line, product_id, quantity, price)
    SELECT order_id, line, product_id, quantity, price
    FROM recovery.order_lines past JOIN orders USING (order_id)
    ON CONFLICT DO NOTHING
"""
DROP: Final = "DROP TABLE recovery.order_lines"


def restore(dsn: str, *, dry_run: bool = False) -> int:
    """Insert what is missing, and drop the copy; returns how many rows were missing."""
    with psycopg.connect(dsn) as connection:
        if dry_run:
            found = connection.execute(COUNT.encode()).fetchone()
            assert found is not None
            return int(found[0])
        count = connection.execute(INSERT.encode()).rowcount
        connection.execute(DROP)
        return count


def main() -> None:
    """Read the options, and restore."""
    parser = argparse.ArgumentParser(description="Insert the lines of orders that are missing.")
    dsn = os.environ.get("HEADRACE_POSTGRES")
    parser.add_argument("--dsn", default=dsn, required=dsn is None, help="the database (HEADRACE_POSTGRES)")
    parser.add_argument("--dry-run", action="store_true", help="only say how many are missing")
    options = parser.parse_args()
    try:
        count = restore(options.dsn, dry_run=options.dry_run)
    except psycopg.Error as error:
        sys.exit(f"error: nothing was restored: {str(error).strip().partition(chr(10))[0]}")
    print(f"{count} rows {'are missing' if options.dry_run else 'were restored'}")


if __name__ == "__main__":
    main()
