"""Call a user's function, and say where it has failed, and of which key and row."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headrace.errors import PipelineError

SHOWN_LENGTH_MAX: Final = 500
"""A longer row is cut in an error."""


def failure(function: Callable[..., Any], error: Exception, *, key: object, given: object) -> PipelineError:
    """The error that says all of it, in one line."""
    told = " ".join(f"{type(error).__name__}: {error}".split())
    shown = repr(given)
    if len(shown) > SHOWN_LENGTH_MAX:
        shown = f"{shown[:SHOWN_LENGTH_MAX]}..."
    return PipelineError(f"{place(function, error)}: {told} (key {key!r}, given {shown})")


def place(function: Callable[..., Any], error: Exception | None = None) -> str:
    """`FILE:LINE`: the innermost line of the function's own file that the error came through."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return repr(function)
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == code.co_filename]
    return f"{code.co_filename}:{lines[-1] if lines else code.co_firstlineno}"


def parameter_count(function: Callable[..., Any], told: str, allowed: tuple[int, ...]) -> int:
    """How many arguments the function is to be called with: the most that it takes of what is allowed."""
    if not callable(function):
        raise PipelineError(f"{told} is {function!r}: give a function")
    try:
        signature = inspect.signature(function)
    except ValueError:
        return allowed[0]
    for count in sorted(allowed, reverse=True):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise PipelineError(
        f"{told} is {place(function)}, which takes {signature}: see hr.keyed for what to take"
    )


def rows_of(made: Any) -> Iterable[Mapping[str, Any]]:
    """The rows that a function gave: several, one, or none."""
    if made is None:
        return ()
    if isinstance(made, Mapping):
        return (made,)
    if isinstance(made, str | bytes) or not isinstance(made, Iterable):
        raise TypeError(f"it gave {made!r}: yield dicts of results, or return one, several, or None")
    return made
