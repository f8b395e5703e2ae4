"""Which error codes an answer carries, wherever in it they lie.

A message says by its types where it keeps error codes: beside each partition, each topic, or once. From that,
one function per class of messages is compiled that visits those places and nothing else, because it is called
for every answer:

    def count_errors(message, counts):
        for e1 in message.responses or ():
            for e2 in e1.partition_responses or ():
                if e2.error_code is not NONE: add(e2.error_code, counts)
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from kio.schema.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    CountErrors = Callable[[Any, dict[ErrorCode, int]], None]

NESTING_MAX: Final = 8


@cache
def error_counter(message_class: type) -> CountErrors:
    """Return the function that counts the error codes of such a message, but for `none`."""
    lines = ["def count_errors(message, counts):", *_visits(message_class, "message", 1), "    return"]
    namespace: dict[str, Any] = {"NONE": ErrorCode.none, "add": _add}
    exec("\n".join(lines), namespace)  # noqa: S102  # the source is made of our own classes' field names
    count_errors: CountErrors = namespace["count_errors"]
    return count_errors


def _add(code: ErrorCode | None, counts: dict[ErrorCode, int]) -> None:
    if code is not None:
        counts[code] = counts.get(code, 0) + 1


def _visits(message_class: type, name: str, depth: int) -> Iterator[str]:
    indent = "    " * depth
    hints = get_type_hints(message_class)
    for field in fields(message_class):
        hint = hints[field.name]
        place = f"{name}.{field.name}"
        if _mentions(hint, ErrorCode):
            yield f"{indent}if {place} is not NONE: add({place}, counts)"
            continue
        nested = _nested_class(hint)
        if nested is None:
            continue
        assert depth < NESTING_MAX  # Kafka's messages are not nested that deep
        element = f"e{depth}"
        inner = list(_visits(nested, element, depth + 1))
        if inner:
            is_array = any(argument is Ellipsis for argument in _flat(hint))
            yield f"{indent}for {element} in {place if is_array else f'({place},)'} or ():"
            yield from inner if is_array else _if_there(inner, element, indent)


def _if_there(inner: list[str], element: str, indent: str) -> Iterator[str]:
    yield f"{indent}    if {element} is None: continue"
    yield from inner


def _flat(hint: Any) -> Iterator[Any]:
    yield hint
    for argument in get_args(hint):
        yield from _flat(argument)


def _mentions(hint: Any, wanted: type) -> bool:
    return any(each is wanted for each in _flat(hint))


def _nested_class(hint: Any) -> type | None:
    return next((each for each in _flat(hint) if isinstance(each, type) and is_dataclass(each)), None)
