"""Code on its way to another process.

Spark sends the functions and classes of a user's file by value, because its workers can't import them. Two
things of a dataclass don't survive that:

- what msgspec has found out about it, which is kept in an attribute of the class and can't be sent. It is
  found out anew where it is needed, here and there;
- hints that are texts (`from __future__ import annotations`), which are names of a module that is not there.
  They are replaced by what they mean.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from typing import Any, Final

_CACHE: Final = "__msgspec_cache__"


def make_portable(code: Iterable[type | Callable[..., Any]]) -> None:
    """Have dataclasses ready to be sent: these, and all that their modules name."""
    modules = {getattr(each, "__module__", "") for each in code}
    for name in modules & set(sys.modules):
        for value in list(vars(sys.modules[name]).values()):
            if isinstance(value, type) and is_dataclass(value):
                _make_portable(value)


def _make_portable(value: type) -> None:
    own = vars(value).get("__annotations__", {})
    if any(isinstance(hint, str) for hint in own.values()):
        try:
            hints = typing.get_type_hints(value, include_extras=True)
        except (NameError, TypeError):
            # What is only imported for type checkers can't be found, there as little as here.
            return
        value.__annotations__ = {name: hints[name] for name in own}
    if _CACHE in vars(value):
        delattr(value, _CACHE)
