"""The command `headrace`: finds out what is wanted, and says in one sentence what went wrong."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from headrace.config import default_client_config
from headrace.errors import HeadraceError, UsageError


def main() -> None:
    """Run a command. Our own errors become one sentence: exit code 2 for misuse, 1 for faults."""
    try:
        if not _run_broker():
            _run(sys.argv[1:])
    except HeadraceError as error:
        from headrace.cli.output import err  # noqa: PLC0415  # only who fails needs it

        err.print(f"[bold red]error:[/bold red] {_escaped(error)}", soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        _end_unread()
    except SystemExit as end:
        # As in `headrace consume t | head`, for which Typer ends with 1.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        _end_unread()


def _end_unread() -> NoReturn:
    """The reader of our output has gone: it has all that it wanted, so this is no failure."""
    # What is left in the buffer goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _run_broker() -> bool:
    """Run the broker, if that is what is wanted and how can be told without Typer; say whether.

    Typer, and what it needs, takes as long to load as the broker.
    """
    if sys.argv[1:2] != ["broker"] or default_client_config() is not None:
        return False
    from headrace.cli.broker_options import read_options  # noqa: PLC0415  # other commands do without

    options = read_options(sys.argv[2:])
    if options is None:
        return False
    try:
        options.run()
    except KeyboardInterrupt:
        sys.exit(130)
    return True


def _run(arguments: list[str]) -> None:
    from headrace.cli.app import COMMANDS, new_app  # noqa: PLC0415  # see _run_broker

    # A name may also be an argument of another command; loading one too many does no harm.
    named = [name for name in COMMANDS if name in arguments]
    new_app(named or COMMANDS)()


def _escaped(error: HeadraceError) -> str:
    return str(error).replace("[", r"\[")
