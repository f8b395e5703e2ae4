"""`headrace check`: can changed pipelines go on from their checkpoints?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli.client import client_options
from headrace.cli.options import AsJson, Bootstrap, DataDir
from headrace.cli.output import announce, print_json
from headrace.config import StreamsConfig


def check(
    target: Annotated[str, typer.Argument(metavar="FILE[:PIPELINE]", help="Where the pipelines are.")],
    bootstrap: Bootstrap,
    data: DataDir,
    as_json: AsJson = False,
) -> None:
    """Say whether pipelines can go on from their checkpoints, and if not, why, and what to do.

    Changes nothing. `headrace run` asks the same before it starts. Exit code 1: one of them can't.
    """
    # Spark is an extra: only the commands that need it may import what needs it.
    from headrace.streams.check import check as check_pipelines  # noqa: PLC0415
    from headrace.streams.load import load_pipelines  # noqa: PLC0415

    config = StreamsConfig(bootstrap=bootstrap, data_dir=data, client_options=client_options())
    answers = check_pipelines(load_pipelines(target), config)
    if as_json:
        print_json(
            [
                {
                    "pipeline": answer.pipeline,
                    "can_go_on": answer.can_go_on,
                    "is_new": answer.is_new,
                    "changes": [asdict(change) for change in answer.changes],
                }
                for answer in answers
            ]
        )
    else:
        for answer in answers:
            announce(str(answer))
    if not all(answer.can_go_on for answer in answers):
        raise typer.Exit(1)
