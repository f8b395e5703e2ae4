"""`headrace users`: who may log in to a broker. The file is changed in place; a running broker notices."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import AsJson, DataDir
from headrace.cli.output import print_rows, say
from headrace.config import new_user_password
from headrace.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Add, list and remove the users who may log in to a broker.")

UsersFileOption = Annotated[
    Path | None,
    typer.Option("--users", help="The file of users.", show_default="users.json in the data directory"),
]


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Who it is.")],
    data: DataDir,
    users: UsersFileOption = None,
) -> None:
    """Add a user, or change a user's password.

    The password is asked for, or read from HEADRACE_PASSWORD, or from standard input where that is no
    terminal. It is not kept: only what proves it.
    """
    # Each command imports only what it needs: the others start faster.
    from headrace.security.users import UserRegistry  # noqa: PLC0415
    from headrace.security.users_file import check_user_name  # noqa: PLC0415

    check_user_name(name)
    path = _path(users, data)
    registry = UserRegistry(path)
    is_new = name not in registry.all()
    registry.add({name: _password(name)})
    say(f"{'added' if is_new else 'changed'} {name} in {path}; start the broker with --users {path}")


@app.command("list")
def list_users(data: DataDir, users: UsersFileOption = None, as_json: AsJson = False) -> None:
    """List the users and how they may log in."""
    from headrace.security.users import UserRegistry  # noqa: PLC0415  # see above

    found = UserRegistry(_path(users, data)).all()
    rows = [
        {
            "user": name,
            "mechanisms": sorted(verifiers) if as_json else ", ".join(sorted(verifiers)),
            "iterations": max(verifier.iteration_count for verifier in verifiers.values()),
        }
        for name, verifiers in sorted(found.items())
    ]
    print_rows(rows, columns=("user", "mechanisms", "iterations"), as_json=as_json)


@app.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="Who it is.")],
    data: DataDir,
    users: UsersFileOption = None,
) -> None:
    """Remove a user. Connections that are open stay open; the next log-in fails."""
    from headrace.security.users import UserRegistry  # noqa: PLC0415  # see above

    path = _path(users, data)
    registry = UserRegistry(path)
    if name not in registry.all():
        raise ConfigError(f"there is no user {name} in {path}; `headrace users list` shows who there is")
    registry.change(lambda found: {each: found[each] for each in found if each != name})
    say(f"removed {name} from {path}")


def _path(users: Path | None, data: Path) -> Path:
    from headrace.security.users_file import USERS_FILE_NAME  # noqa: PLC0415  # see above

    return users or data / USERS_FILE_NAME


def _password(name: str) -> str:
    password = new_user_password()
    if password is None and sys.stdin.isatty():
        password = getpass.getpass(f"Password of {name}: ")
        if password != getpass.getpass("Again: "):
            raise ConfigError("the two passwords differ: nothing was changed")
    elif password is None:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise ConfigError("the password is empty: nothing was changed")
    return password
