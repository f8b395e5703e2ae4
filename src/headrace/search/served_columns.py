"""What an index of a server knows of its rows' columns: it is kept beside its mapping. No I/O."""

from __future__ import annotations

import json
from typing import Any, Final

from headrace.search.fields import Columns

META: Final = "headrace"


def kept_columns(mappings: dict[str, Any]) -> Columns | None:
    """The columns that an index was made for; None where it was not made here."""
    kept = mappings.get("_meta", {}).get(META)
    try:
        return None if kept is None else Columns.from_json(json.dumps(kept))
    except ValueError:
        return None
