"""The deciders and read models of a Python file: `FILE`, or `FILE:DECIDER` for one of them."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from headrace.errors import ConfigError, HeadraceError, SetupError

if TYPE_CHECKING:
    from headrace.events import Decider
    from headrace.events.projections.projection import Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile:
    """What a file has, by the names that it has there."""

    path: Path
    deciders: dict[str, Decider]
    projections: dict[str, Projection]

    def decider(self, name: str) -> Decider:
        """The decider of that name."""
        if name not in self.deciders:
            known = ", ".join(self.deciders)
            raise ConfigError(f"{self.path} has no decider {name!r}: it has {known}")
        return self.deciders[name]

    def by_category(self) -> dict[str, Decider]:
        """The decider that decides for each category: the first one in the file."""
        first: dict[str, Decider] = {}
        for decider in self.deciders.values():
            first.setdefault(decider.category, decider)
        return first


def split_target(target: str) -> tuple[Path, str]:
    """The file and the decider that `FILE:DECIDER` names."""
    path, _, name = target.rpartition(":")
    if not path or not name:
        raise ConfigError(f"{target!r} names no decider: write FILE:DECIDER, such as bank.py:Account")
    return Path(path), name


def load_event_file(path: Path) -> EventFile:
    """Run the file and look what it has. Its code is trusted, as that of a pipeline is."""
    require_events()
    # What it needs is an extra: only the commands that need it import it.
    from headrace.events import Decider  # noqa: PLC0415
    from headrace.events.projections.projection import Projection  # noqa: PLC0415

    names = vars(_load(path))
    deciders = {name: value for name, value in names.items() if isinstance(value, Decider)}
    if not deciders:
        raise ConfigError(f"{path} has no decider: mark a class with @events.decider(...), or import one")
    projections: dict[str, Projection] = {}
    for value in names.values():
        if isinstance(value, Projection):
            projections.setdefault(value.name, value)
    return EventFile(path=path, deciders=deciders, projections=projections)


def require_events() -> None:
    """Raise where what the event store needs is not installed."""
    lacking = [
        name for name in ("msgspec", "psycopg", "cryptography") if importlib.util.find_spec(name) is None
    ]
    if lacking:
        raise SetupError(
            f"the event store needs an extra ({', '.join(lacking)} is missing): "
            "pip install 'headrace[postgres]'"
        )


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}: name a Python file with deciders")
    spec = importlib.util.spec_from_file_location(f"headrace_events_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # The file may import its neighbours, as it could if Python had been started with it.
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except HeadraceError as error:
        raise ConfigError(f"{_place(path, error)}{error}") from error
    except Exception as error:
        told = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(f"{_place(path, error)}{type(error).__name__}: {told}") from error
    return module


def _place(path: Path, error: Exception) -> str:
    """`FILE, line 12: `: the innermost line of the file itself that the error came through."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f"{error.filename}, line {error.lineno}: "
    frames = traceback.extract_tb(error.__traceback__)
    lines = [each.lineno for each in frames if Path(each.filename).absolute() == path.absolute()]
    return f"{path}, line {lines[-1]}: " if lines else f"{path}: "
