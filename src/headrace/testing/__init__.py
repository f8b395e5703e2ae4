"""The test kit: a broker for each test, ways to let it die, fail or wait, and proof of what came of that.

- plugin        the pytest fixtures `headrace_broker`, `headrace_postgres` and those of pipelines
- postgres      a PostgreSQL server for all tests, a database for each
- journals, accounts    what every journal of events promises, and a small bank account to try it on
- process       a broker in a process of its own, to be killed and started again
- failpoints    named places where it dies, fails or waits
- history, anomalies    what clients did and saw, and what of it a log must never do
- clock, disk   time that moves by hand, and a disk that loses what was not synced
- waiting       until something comes true
- simulation, fuzz      the broker's own proof: seeded stories, and bytes that no client sends
"""
