"""The index that an alias of a server stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headrace.errors import PipelineError
from headrace.search.fields import Columns
from headrace.search.served_columns import kept_columns
from headrace.search.server import Server
from headrace.streams.sinks.opensearch.mapping import generation_name, index_body

_THERE = "resource_already_exists_exception"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An index that an alias stands for."""

    name: str
    uuid: str
    """It is another when the index is made anew, or a backup is restored into it."""
    columns: Columns


def find(server: Server, index: str) -> Generation | None:
    """What the alias stands for; None where there is none. Raises where something else has its name."""
    what = f"looking for the index {index}"
    answer = server.ask("GET", f"/{quote(index, safe='')}", what=what, accepted={404})
    if answer.status == 404:
        return None
    found: dict[str, dict[str, Any]] = answer.body
    names = sorted(found)
    if len(names) != 1 or index in names:
        raise PipelineError(
            f"{index} on {server.told} is not an alias of one index, as a pipeline makes it, but "
            f"{', '.join(names)}: write an index of another name"
        )
    (name,) = names
    columns = kept_columns(found[name].get("mappings", {}))
    if columns is None:
        raise PipelineError(
            f"the index {name} on {server.told} was not made by a pipeline: write an index of another name"
        )
    return Generation(name=name, uuid=_uuid(found[name]["settings"]["index"]), columns=columns)


def ensure(server: Server, index: str, columns: Columns) -> Generation:
    """What the alias stands for, made if it is missing. It may have been made for other columns."""
    found = find(server, index)
    if found is not None:
        return found
    what = f"making the index {index}"
    version = server.ask("GET", "/", what=what).body.get("version", {})
    name = generation_name(index)
    answer = server.ask(
        "PUT",
        f"/{quote(name, safe='')}",
        index_body(columns, index, is_opensearch=version.get("distribution") == "opensearch"),
        what=what,
        accepted={400},
    )
    if answer.status == 400 and answer.kind != _THERE:
        raise PipelineError(f"{what} is refused by {server.told}: {answer.words}")
    # Whoever made it, also on an attempt of ours whose answer was lost.
    found = find(server, index)
    if found is None:
        raise PipelineError(
            f"there is an index {name} on {server.told} that the alias {index} does not stand for: delete "
            "it, or give it the alias back"
        )
    return found


def _uuid(settings: dict[str, Any]) -> str:
    """A closed index into which a backup is restored keeps its own id, and gets another history."""
    history = settings.get("history", {}).get("uuid")
    return str(settings["uuid"]) if history is None else f"{settings['uuid']} {history}"


def refuse_changed(found: Columns, given: Columns, *, index: str, pipeline: str) -> None:
    """Raise where an index was made for other columns."""
    reasons = found.differences(given)
    if reasons:
        raise PipelineError(
            f"pipeline {pipeline} can't write the search index {index}, which was made for other columns: "
            f"{'; '.join(reasons)}. `headrace replay FILE:{pipeline} --swap` builds it anew"
        )
