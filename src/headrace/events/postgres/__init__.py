"""The journal in PostgreSQL.

- journal        the journal itself
- tables.sql     its tables
- functions.sql  what is done in one transaction: how events are appended
- migration      makes them, once, however many open the journal at the same time
- queries        what is asked
- appends        one event by a query, all else by a function
- group_commit   appends that wait for each other go in one transaction
- connections    connections that are lent and given back, and the database's errors in our own words
- prepared       calls that are prepared once, and get all values as texts
- busy_wait      waiting for an answer without going to sleep
- calls          what an append is as arguments of the function, and what its results mean
"""

from __future__ import annotations

from headrace.events.postgres.journal import PostgresJournal

__all__ = ["PostgresJournal"]
