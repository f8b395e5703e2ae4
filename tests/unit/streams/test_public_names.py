"""What `import headrace.streams as hr` offers."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import headrace.streams as hr


def test_no_module_hides_a_public_name() -> None:
    for module in pkgutil.iter_modules(hr.__path__, f"{hr.__name__}."):
        importlib.import_module(module.name)
    hidden = [name for name in hr.__all__ if isinstance(getattr(hr, name), ModuleType)]
    assert hidden == []


def test_every_public_function_is_documented() -> None:
    undocumented = [name for name in hr.__all__ if callable(found := getattr(hr, name)) and not found.__doc__]
    assert undocumented == []
