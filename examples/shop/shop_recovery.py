"""Tables of the shop as they were at a moment, from the log:

    headrace replay examples/shop/shop_recovery.py:order_lines_before --to 2026-11-17T09:30:00Z \\
        --into recovery.order_lines

The table that `--into` names is made anew, in the schema `recovery` of the shop's database
(HEADRACE_POSTGRES), which is not captured. shop_restore.py then inserts what is missing. This file is not for
`headrace run`.
"""

from __future__ import annotations

import os

from pyspark.sql import DataFrame

import headrace.streams as hr
import shop_pipelines as shop

DSN = os.environ.get("HEADRACE_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")


@hr.pipeline(
    reads={"lines": shop.order_lines},
    writes=hr.postgres_table(DSN, "recovery.order_lines_live", key=["order_id", "line"]),
)
def order_lines_before(lines: DataFrame) -> DataFrame:
    """The lines of all orders, as far as the log is read."""
    return hr.upserts(hr.changes(lines))
