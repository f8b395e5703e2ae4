"""`headrace queues redrive`: move dead letters back to work."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli.options import AsJson, Yes
from headrace.cli.output import announce, print_json, print_rows, say
from headrace.cli.queue_connection import QueuesUrl, on_connection
from headrace.cli.queue_options import headers_of
from headrace.cli.record_filter import Condition
from headrace.config import failpoints_to_arm
from headrace.errors import FaultError
from headrace.failpoints import arm_all
from headrace.queue_clients.connection import QueueConnection
from headrace.queue_clients.redrive import DeadLetter, Redrive, RedriveResult
from headrace.queue_clients.redrive import redrive as move_back
from headrace.queue_clients.redrive_filter import RedriveFilter

SHOWN_MAX = 20
COLUMNS = ("number", "message_id", "reason", "origin", "routing_key", "to", "cause", "preview")


def redrive(
    queue: Annotated[str, typer.Argument(help="The queue of dead letters.")],
    url: QueuesUrl,
    to: Annotated[
        str | None, typer.Option(help="The queue they go to.", show_default="each where it died last")
    ] = None,
    to_exchange: Annotated[
        str | None, typer.Option(help="Publish to this exchange, with the key that each had.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Only those that died so: rejected, expired, push-failed, ...")
    ] = None,
    origin: Annotated[str | None, typer.Option(help="Only those that died in this queue.")] = None,
    routing_key: Annotated[str | None, typer.Option(help="Only those published with this key.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="Only those with this header, KEY=VALUE; repeatable.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Only those whose JSON body passes: '@.amount > 100'.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many, at most: 1 to go one by one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be moved.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move dead letters back to work.

    The copy is confirmed before the original goes: stop it whenever you like, nothing is lost. What was on
    its way in that moment may be there twice, with the same message id.
    """
    condition = None if where is None else Condition.parse(where)
    asked = Redrive(
        queue=queue,
        to_queue=to,
        to_exchange=to_exchange,
        which=RedriveFilter(
            reason=reason,
            origin=origin,
            routing_key=routing_key,
            headers=headers_of(header or []),
            body=None if condition is None else condition.holds,
        ),
        limit=limit,
        dry_run=dry_run,
    )
    if not dry_run and not yes:
        typer.confirm(
            f"Move {'up to ' + str(limit) if limit else 'all'} dead letters of {queue} that pass? --dry-run "
            "shows them",
            abort=True,
            err=True,
        )
    letters: list[DeadLetter] = []

    def show(letter: DeadLetter) -> None:
        if as_json:
            print_json({"letter": asdict(letter)})
        elif dry_run and len(letters) < SHOWN_MAX:
            letters.append(letter)

    async def work(connection: QueueConnection) -> RedriveResult:
        return await move_back(connection, asked, show)

    arm_all(failpoints_to_arm())
    result = on_connection(url, work)
    _tell(asked, result, letters, as_json=as_json)
    if result.kept and not dry_run:
        raise FaultError(f"{result.kept} dead letters stayed in {queue}: {result.problems[0]}")


def _tell(asked: Redrive, result: RedriveResult, letters: list[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        print_json({"queue": asked.queue, "dry_run": asked.dry_run, **asdict(result)})
        return
    if letters:
        print_rows([asdict(each) for each in letters], columns=COLUMNS, as_json=False)
    if asked.dry_run:
        more = f", of which {len(letters)} are shown" if len(letters) < result.passed else ""
        say(f"nothing was moved (--dry-run): {result.passed} of {result.looked_at} pass{more}")
        for problem in result.problems:
            say(problem)
    else:
        announce(f"moved {result.moved} of {result.looked_at} dead letters of {asked.queue}")
