"""The directory of an embedded database: made by initdb, whole or not at all.

initdb works in a directory beside it, which then gets the name; one that was killed leaves a directory that
the next start removes. The superuser `headrace` logs in with a password that nobody has to know: it lies in a
file that only whoever runs us can read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Final

from headrace.errors import SetupError
from headrace.postgres.account import Account
from headrace.postgres.home import CLUSTER_NAME
from headrace.postgres.programs import Programs

USER: Final = "headrace"
DATABASE: Final = "postgres"
PASSWORD_NAME: Final = "password"  # noqa: S105  # the name of a file
PASSFILE_NAME: Final = "pgpass"
INITDB_S_MAX: Final = 300
_PASSWORD_BYTES: Final = 24


def version_of(home: Path) -> int | None:
    """The major version of PostgreSQL that made the database; None where there is none yet."""
    try:
        return int((home / CLUSTER_NAME / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None


def ensure_cluster(home: Path, programs: Programs, account: Account, *, is_durable: bool) -> Path:
    """Return the database's directory, after making it if it is not there."""
    cluster = home / CLUSTER_NAME
    if not cluster.exists():
        unfinished = home / f"{CLUSTER_NAME}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        account.own(unfinished)
        _initdb(unfinished, programs, account, is_durable=is_durable, password=_new_password(home))
        unfinished.rename(cluster)
    return cluster


def password_of(home: Path) -> str:
    """The superuser's password."""
    return (home / PASSWORD_NAME).read_text()


def write_passfile(home: Path) -> Path:
    """A file that libpq reads the password from, for whoever names it: `passfile=...`."""
    path = home / PASSFILE_NAME
    _write_secret(path, f"*:*:*:{USER}:{password_of(home)}\n")
    return path


def _new_password(home: Path) -> str:
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    _write_secret(home / PASSWORD_NAME, password)
    return password


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w") as stream:
        stream.write(text)


def _initdb(
    directory: Path, programs: Programs, account: Account, *, is_durable: bool, password: str
) -> None:
    handed = directory.parent / "password.handed"
    handed.touch(mode=0o600)
    handed.write_text(password)
    account.own(handed)
    command = [
        str(programs["initdb"]),
        f"--pgdata={directory}",
        f"--username={USER}",
        f"--pwfile={handed}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        # The same order of text on every machine.
        "--no-locale",
        *(() if is_durable else ("--no-sync",)),
    ]
    try:
        made = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=INITDB_S_MAX,
            # The working directory may be one that the account can't enter.
            cwd=directory,
            **account.process_options,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"initdb could not make a database in {directory}: {error}") from error
    finally:
        handed.unlink()
    if made.returncode != 0:
        raise SetupError(f"initdb could not make a database in {directory}: {made.stderr.strip()}")
