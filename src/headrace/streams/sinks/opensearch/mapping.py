"""How an index of a server is made: its mapping, its settings, its aliases. No I/O.

    products                 the alias by which the index is known
    products-g000001         the index itself, a generation
    products-g000001-rows    an alias of the generation by which it is written

Rows are written by an alias of the generation that goes with it, because a server makes a new index for rows
of one that is gone, and can be told to take those of an alias only if it is there.

Only columns have fields; what can't be searched is kept all the same. A late write of a row that was deleted
is known as late for an hour.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from headrace.errors import PipelineError
from headrace.search.fields import Column, Columns, Kind
from headrace.search.served_columns import META

GC_DELETES: Final = "1h"
WHOLE_LENGTH_MAX: Final = 8191
"""How long a text may be that is found whole: four bytes for each character, and the server takes 32,766."""
_WHOLE: Final = {"type": "keyword", "ignore_above": WHOLE_LENGTH_MAX}
# Numbers that are none, and moments that the server does not know, are kept and not found.
_FIELDS: Final[Mapping[Kind, dict[str, Any]]] = MappingProxyType(
    {
        "words": {"type": "text", "fields": {"keyword": _WHOLE}},
        "whole": _WHOLE,
        "integer": {"type": "long"},
        "float": {"type": "double", "ignore_malformed": True},
        "boolean": {"type": "boolean"},
        "moment": {"type": "date", "ignore_malformed": True},
    }
)


def generation_name(index: str) -> str:
    """The first generation of an index."""
    return f"{index}-g000001"


def rows_alias(generation: str) -> str:
    """Where the rows of a generation are written to."""
    return f"{generation}-rows"


def index_body(columns: Columns, index: str, *, is_opensearch: bool) -> dict[str, Any]:
    """What makes the first generation of an index, with its aliases, at once."""
    generation = generation_name(index)
    fields = {
        column.name: field
        for column in columns.searched
        if (field := _field(column, is_opensearch=is_opensearch)) is not None
    }
    return {
        "settings": {
            "index.gc_deletes": GC_DELETES,
            "index.query.default_field": columns.text_names or ["*"],
        },
        "mappings": {
            "dynamic": False,
            "_meta": {META: json.loads(columns.to_json())},
            "properties": fields,
        },
        # Whatever else is given the alias by mistake is not written to.
        "aliases": {index: {}, rows_alias(generation): {"is_write_index": True}},
    }


def check_names(columns: Columns, *, pipeline: str) -> None:
    """Raise where a column's name is one that servers have for themselves."""
    for column in columns.columns:
        if column.name.startswith("_") or not column.name.strip(". "):
            raise PipelineError(
                f"pipeline {pipeline} returns the column {column.name!r}, which can't be the name of a field "
                "of a search server: name it otherwise"
            )


def _field(column: Column, *, is_opensearch: bool) -> dict[str, Any] | None:
    if column.kind == "json":
        # The two servers have the same thing by different names. A variant can be anything.
        whole = {"type": "flattened", "ignore_above": WHOLE_LENGTH_MAX}
        found = {"type": "flat_object"} if is_opensearch else whole
        return None if column.type == "variant" else found
    return _FIELDS[column.kind]
