"""The ledger as a table, in the same database as what it speaks of, and in the same transactions.

    headrace_batches
    pipeline         the pipeline's name; for a user's function, the name that it was given
    target           schema and name of the table that is written; for a user's function, the query's id
    share_number     number of the share; -1 for the run itself
    share_count      into how many shares the batch was spread
    query_id         Spark's, or any other id of one run of batches
    next_batch_id    id of the batch whose share was written, plus one
    digest           of the batch's input; for the run itself, the run's id

What an entry says about a batch is decided in ledger.py. None of the names is a reserved word in PostgreSQL,
MySQL or SQLite: they are written without quotes, which each has its own of.
"""

from __future__ import annotations

from typing import Final

LEDGER_TABLE: Final = "headrace_batches"
LEDGER_COLUMNS: Final = """(
    pipeline varchar(300) NOT NULL,
    target varchar(300) NOT NULL,
    share_number integer NOT NULL,
    share_count integer NOT NULL,
    query_id varchar(100) NOT NULL,
    next_batch_id bigint NOT NULL,
    digest varchar(100) NOT NULL,
    PRIMARY KEY (pipeline, target, share_number)
)"""
