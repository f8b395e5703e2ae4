"""Python source that is made at run time: the codec writes one function per message and version.

A message is read or written by one flat function, without a call per field: Python calls cost more than the
fields themselves. What goes into the source is made of field names of Kafka's schemas and of numbers alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

INDENT: Final = "    "


class Source:
    """The lines of one function, and the objects that they name."""

    def __init__(self, signature: str) -> None:
        self._signature = signature
        self._lines: list[str] = []
        self._depth = 1
        self._variable_count = 0
        self._names: dict[str, Any] = {}

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append(INDENT * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that ends with a colon; what is added meanwhile belongs to it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self) -> str:
        """A name that nothing else has."""
        self._variable_count += 1
        return f"v{self._variable_count}"

    def constant(self, value: Any) -> str:
        """A name for an object that the function uses."""
        name = f"c{len(self._names)}"
        self._names[name] = value
        return name

    def compile(self, description: str) -> Any:
        """The function; the description is the file name that a traceback shows."""
        text = "\n".join((f"def {self._signature}:", *self._lines, ""))
        code = compile(text, f"<{description}>", "exec")
        exec(code, self._names)  # noqa: S102  # no byte of the source comes from outside, see above
        return self._names[self._signature.partition("(")[0]]
