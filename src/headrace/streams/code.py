"""A fingerprint of the code that a pipeline is made of: it tells whether results may have changed."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

SOURCE_ATTRIBUTE: Final = "__headrace_source__"
"""Of a function that is made from another text than Python's: that text."""
_PARSE_AGAIN_MAX: Final = 3


def fingerprint(function: Callable[..., Any]) -> str | None:
    """Of all code of the file that defines the function; None where the file can't be read.

    Comments and layout don't count. Code that the file imports does not either. Of a view it is its SQL.
    """
    text = getattr(inspect.unwrap(function), SOURCE_ATTRIBUTE, None)
    if text is not None:
        return hashlib.sha256(" ".join(str(text).split()).encode()).hexdigest()[:16]
    try:
        source = Path(inspect.unwrap(function).__code__.co_filename).read_text()
        return fingerprint_of(source)
    except (OSError, SyntaxError, ValueError):
        return None


def fingerprint_of(source: str) -> str:
    """Of a file's content."""
    for _ in range(_PARSE_AGAIN_MAX):
        # Python 3.11 mixes up threads that parse at the same time: python/cpython#106905.
        with suppress(SystemError):
            return _digest_of(source)
    return _digest_of(source)


def _digest_of(source: str) -> str:
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()[:16]
