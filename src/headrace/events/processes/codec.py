"""States and commands as they are kept: the name of a class, and JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace.errors import ConfigError


class NamedValues:
    """Writes and reads values of some classes."""

    def __init__(self, told: str, classes: Iterable[type]) -> None:
        self._told = told
        self._classes: dict[str, type] = {}
        for each in classes:
            if self._classes.setdefault(each.__name__, each) is not each:
                raise ConfigError(f"{told}: two classes are called {each.__name__}; rename one")

    def write(self, value: Any) -> tuple[str, bytes]:
        """The name of its class, and JSON."""
        name = type(value).__name__
        if self._classes.get(name) is not type(value):
            raise ConfigError(
                f"{self._told}: {value!r} is of none of the known classes, {', '.join(self._classes)}; name "
                "its class where the others are named"
            )
        return name, msgspec.json.encode(value)

    def can_read(self, name: str, data: bytes) -> bool:
        """Whether the value fits the code of today."""
        try:
            self.read(name, data)
        except Exception:  # noqa: BLE001 - whatever its class raises, it does not fit
            return False
        return True

    def read(self, name: str, data: bytes) -> Any:
        """The value. Raises ConfigError where it does not fit the code of today."""
        if name not in self._classes:
            raise ConfigError(f"{self._told}: a {name} is kept, and no class is called so: bring it back")
        try:
            return msgspec.json.decode(data, type=self._classes[name])
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{self._told}: a {name} that is kept can't be read: {error}") from error
