"""Where the embedded PostgreSQL lives: `postgres` in the data directory, and what root has to do for that.

The data directory is its owner's alone (mode 0700). PostgreSQL does not run as root, so where root is the
owner, the account that it runs as is let through: the directory gets its group, which may pass and not
look (0710). Directories above belong to others and are left alone. Where one of them lets nobody through,
as /root does, the database is kept in /var/lib/headrace instead, under a name made from the data
directory's.

    postgres/
      cluster/          PostgreSQL's own directory
      run/              its socket, where the path is short enough for one
      password          of its superuser `headrace`; only whoever runs us can read it
      pgpass            the same for libpq: `passfile=...` in an address that is shown
      log               what it says; begun anew at a start when it has grown past LOG_BYTES_MAX
      lock              held while it runs
      programs-…/       a copy of PostgreSQL's programs, where the account can't reach those of the wheel
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from pathlib import Path
from typing import Final

from headrace.logs import fields
from headrace.postgres.account import Account

SYSTEM_DIR: Final = Path("/var/lib/headrace")
HOME_NAME: Final = "postgres"
CLUSTER_NAME: Final = "cluster"
_GROUP_MAY_PASS: Final = stat.S_IXGRP

_logger = logging.getLogger(__name__)


def home_of(data_dir: Path, account: Account, *, system_dir: Path = SYSTEM_DIR) -> Path:
    """The directory of the database, made if need be, which the account can reach."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    data_dir = data_dir.resolve()
    if not account.is_other or all(account.may_enter(parent) for parent in data_dir.parents):
        _let_through(data_dir, account)
        home = data_dir / HOME_NAME
    else:
        home = elsewhere(data_dir, system_dir=system_dir)
        _logger.info(
            "the database of %s is kept in %s: it does not run as root, and nobody else can get there",
            data_dir,
            home,
            extra=fields(data_dir=str(data_dir), home=str(home)),
        )
        system_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
    home.mkdir(exist_ok=True, mode=0o700)
    _let_through(home, account)
    return home


def elsewhere(data_dir: Path, *, system_dir: Path = SYSTEM_DIR) -> Path:
    """Where the database is kept if it can't be in the data directory; whether it is or not."""
    digest = hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:16]
    return system_dir / f"{HOME_NAME}-{digest}"


def _let_through(directory: Path, account: Account) -> None:
    """Let the account pass a directory of ours, and nobody else whom it keeps out now."""
    if not account.is_other or account.may_enter(directory):
        return
    os.chown(directory, -1, account.group_id)
    directory.chmod(stat.S_IMODE(directory.stat().st_mode) & ~stat.S_IRWXG | _GROUP_MAY_PASS)
