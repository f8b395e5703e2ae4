"""What a function depends on, as one text: its code, and all that the code reaches by name.

Followed are functions, also those that are reached as `module.function`, in a closure or in a partial;
classes with what they inherit, their methods, constants, defaults and the classes of their fields; and data
by what is in it: numbers, texts, lists, dicts, sets, dates, members of an Enum, dataclasses, plain objects.

Not followed are the standard library, which is told by name, and installed packages, which are told by the
source of the module. Past a bound the same is done with everything: the source of a module is told instead of
what is in it. So a change is rather seen too often than not at all.

Not seen are a file or a table that is read, a module that is imported within a function, and what an object
of an installed package holds if its repr does not show it.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import re
import sys
import types
import typing
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final

FOLLOWED_MAX: Final = 2_000
"""How many functions and classes are followed at most."""
DEPTH_MAX: Final = 50
"""How deep values may be in each other; what is deeper is told by the source of its class's module."""
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_MADE_BY_DATACLASSES: Final = "<string>"
_OF_STRUCTS: Final = ("__struct_fields__", "__struct_defaults__")
_INSTALLED: Final = ("site-packages", "dist-packages")


class ReachedCode:
    """Collects what is told of values. Used once, by one thread."""

    def __init__(self) -> None:
        self._told = hashlib.blake2b(digest_size=16)
        self._left: deque[types.FunctionType | type] = deque()
        self._seen: dict[int, Any] = {}
        self._path: list[int] = []
        self._followed_count = 0

    def add(self, *values: Any) -> None:
        """Tell some values, and all that they reach."""
        for value in values:
            self._tell(self._value(value))
        while self._left:
            item = self._left.popleft()
            self._followed_count += 1
            if self._followed_count > FOLLOWED_MAX:
                self._tell(_source(item.__module__))
            elif isinstance(item, type):
                self._tell(self._class(item))
            else:
                self._tell(self._function(item))

    def hexdigest(self) -> str:
        """All that was told, as one text."""
        return self._told.hexdigest()

    def _tell(self, told: object) -> None:
        self._told.update(repr(told).encode("utf-8", "backslashreplace"))

    def _value(  # noqa: PLR0911 - a table of kinds
        self, value: Any, names: AbstractSet[str] = frozenset()
    ) -> object:
        """A value in a form that is the same in every process. `names` are what a module is asked for."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.ModuleType):
            return self._module(value, names)
        if isinstance(value, type | types.FunctionType):
            return self._named(value)
        if isinstance(value, enum.Enum):
            return (self._named(type(value)), value.name)
        if id(value) in self._path:
            return "again"
        if len(self._path) > DEPTH_MAX:
            return _source(type(value).__module__)
        self._path.append(id(value))
        try:
            return self._held(value)
        finally:
            self._path.pop()

    def _held(self, value: Any) -> object:  # noqa: PLR0911 - a table of kinds
        """A value that others may be in."""
        match value:
            case staticmethod() | classmethod() | types.MethodType():
                return self._values((getattr(value, "__self__", None), value.__func__))
            case property():
                return self._values((value.fget, value.fset))
            case functools.partial():
                return self._values((value.func, value.args, value.keywords))
            case functools.cached_property():
                return self._value(value.func)
            case Mapping():
                return [self._named(type(value)), *(self._values(each) for each in value.items())]
            case AbstractSet():
                return [self._named(type(value)), *sorted(repr(self._value(each)) for each in value)]
            case list() | tuple() | deque():
                return [self._named(type(value)), *self._values(value)]
            case _:
                return self._object(value)

    def _values(self, values: Iterable[Any]) -> list[object]:
        return [self._value(each) for each in values]

    def _object(self, value: Any) -> object:
        kind = type(value)
        if _is_standard(kind.__module__) or _is_installed(kind.__module__):
            return (self._named(kind), self._value(getattr(value, "__wrapped__", None)), _lasting(value))
        if id(value) in self._seen:
            return "again"
        self._seen[id(value)] = value
        plain = [base.__repr__(value) for base in (int, float, str, bytes) if isinstance(value, base)]
        names = {name for each in kind.__mro__ for name in _slots(each)} | set(getattr(value, "__dict__", ()))
        held = [(name, self._value(getattr(value, name, None))) for name in sorted(names)]
        return (self._named(kind), plain, held)

    def _module(self, module: types.ModuleType, names: AbstractSet[str]) -> object:
        if _is_standard(module.__name__):
            return module.__name__
        if _is_installed(module.__name__):
            return _source(module.__name__)
        asked = [name for name in sorted(names) if name in vars(module)]
        # A package has its modules, and they have others; each is asked once for the same names.
        return (module.__name__, [(name, self._value(vars(module)[name], names - {name})) for name in asked])

    def _named(self, value: types.FunctionType | type) -> object:
        """The name of something that is followed once."""
        name = (value.__module__, value.__qualname__)
        if id(value) in self._seen or _is_standard(value.__module__):
            return name
        self._seen[id(value)] = value
        if _is_installed(value.__module__):
            return (*name, _source(value.__module__))
        self._left.append(value)
        return name

    def _function(self, function: types.FunctionType) -> object:
        names = _names(function.__code__)
        reached = [
            (name, self._value(function.__globals__[name], names))
            for name in sorted(names)
            if name in function.__globals__
        ]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):
                reached.append((name, self._value(cell.cell_contents, names)))
        defaults = self._values((function.__defaults__, function.__kwdefaults__))
        wrapped = self._value(getattr(function, "__wrapped__", None))
        return (self._code(function.__code__), defaults, reached, wrapped)

    def _code(self, code: types.CodeType) -> object:
        consts = self._values(code.co_consts)
        return (code.co_code, code.co_names, code.co_varnames, code.co_exceptiontable, consts)

    def _class(self, body: type) -> object:
        bases = [self._named(each) for each in body.__mro__[1:]]
        annotations = _ADDRESS.sub("", repr(inspect.get_annotations(body)))
        hints: dict[str, Any] = {}
        with suppress(Exception):  # a hint that can't be resolved is told by its text alone
            hints = typing.get_type_hints(body)
        field_types = [self._named(each) for hint in hints.values() for each in _classes_in(hint)]
        own = [(name, self._value(value)) for name, value in _own(body)]
        return (body.__qualname__, bases, annotations, field_types, own, self._defaults(body))

    def _defaults(self, body: type) -> object:
        if issubclass(body, enum.Enum):
            return [(name, self._value(member.value)) for name, member in body.__members__.items()]
        if is_dataclass(body):
            given = [(each.name, each.default, each.default_factory) for each in fields(body)]
            return [[self._value(part) for part in each if part is not MISSING] for each in given]
        struct: Any = body
        return [self._value(getattr(struct, name, None)) for name in _OF_STRUCTS]


def _own(body: type) -> Iterator[tuple[str, Any]]:
    """What a class's author has written, without what Python, dataclasses and Enum make."""
    for name, value in sorted(vars(body).items()):
        if inspect.isfunction(value):
            is_own = value.__code__.co_filename != _MADE_BY_DATACLASSES
        elif isinstance(value, property | staticmethod | classmethod | functools.cached_property):
            is_own = True
        else:
            is_made = name.startswith("__") or issubclass(body, enum.Enum)
            is_own = not is_made and not inspect.isdatadescriptor(value)
        if is_own:
            yield name, value


def _classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for each in typing.get_args(hint):
        yield from _classes_in(each)


def _slots(body: type) -> tuple[str, ...]:
    slots = body.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _names(code: types.CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*(_names(each) for each in inner))


def _lasting(value: Any) -> str:
    return _ADDRESS.sub("", repr(value))


def _is_standard(module: str | None) -> bool:
    return module is None or module.partition(".")[0] in sys.stdlib_module_names


def _is_installed(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return any(each in file for each in _INSTALLED)


@functools.cache
def _source(module: str) -> str:
    with suppress(OSError, TypeError, KeyError):
        return inspect.getsource(sys.modules[module])
    return module
