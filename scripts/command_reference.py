"""Write docs/reference/cli.md from the commands themselves: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from typer.main import get_command

from headrace.cli.app import new_app


def main(target: Path) -> None:
    """Write the page."""
    context = typer.Context(get_command(new_app()), info_name="headrace")
    lines = ["# Commands", "", "Made by `make docs` from the code.", "", *_sections(context)]
    target.write_text("\n".join(lines).rstrip() + "\n")


def _sections(context: typer.Context) -> list[str]:
    command = context.command
    children = getattr(command, "commands", {})
    if children:
        return [
            line
            for name, child in children.items()
            for line in _sections(typer.Context(child, info_name=name, parent=context))
        ]
    usage = command.get_usage(context).removeprefix("Usage: ")
    title = [f"## {context.command_path}", "", (command.help or "").strip(), ""]
    return [*title, "```", usage, "```", "", *_parameters(context)]


def _parameters(context: typer.Context) -> list[str]:
    records = [parameter.get_help_record(context) for parameter in context.command.get_params(context)]
    rows = [
        f"| `{name.replace('|', ', ')}` | {' '.join(meaning.split())} |"
        for name, meaning in filter(None, records)
        if "--help" not in name
    ]
    return ["| option | meaning |", "|---|---|", *rows, ""] if rows else []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
