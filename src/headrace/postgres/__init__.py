"""A PostgreSQL at hand: one of the user's, named by its DSN, or an embedded one that needs no set-up.

    with open_database(dsn=None, config=PostgresConfig(data_dir=Path(".headrace"))) as dsn:
        ...                                     # any client of PostgreSQL can use it

- database    the user's own where there is one, else an embedded one
- server      starts and stops the embedded one; what a crash has left running is stopped first
- cluster     its directory: made by initdb, whole or not at all
- home        where that directory is, also where root may not run a database itself
- account     whom it runs as
- programs    finds PostgreSQL's programs: the user's choice, the wheel's, the system's own
- postmaster  what the server says of itself in its own file
"""

from __future__ import annotations

from headrace.postgres.database import open_database
from headrace.postgres.server import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "open_database"]
