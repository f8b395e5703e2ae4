"""What becomes of settings when a client changes some of them. No I/O.

    SET        the setting gets a value
    DELETE     the setting is left to the default again
    APPEND     words are added to a list
    SUBTRACT   words are taken from a list

APPEND and SUBTRACT start from the value that holds, whether it was set or is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.refusal import Refused
from headrace.log.setting_kinds import SettingType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.kafka.settings import Setting


class Operation(IntEnum):
    """What to do with a setting, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: Final = frozenset(Operation)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One setting, and what to do with it."""

    name: str
    operation: int
    value: str | None


def changed_config(
    config: Mapping[str, str], settings: Mapping[str, Setting], changes: Iterable[ConfigChange]
) -> dict[str, str]:
    """What is set after the changes, given what is set now and what holds now. Raises Refused.

    Whether a value is right is not looked at.
    """
    changes = tuple(changes)
    if len({change.name for change in changes}) < len(changes):
        raise Refused(ErrorCode.invalid_request, "a setting is named twice: name each once")
    result = dict(config)
    for change in changes:
        if change.operation == Operation.DELETE:
            result.pop(change.name, None)
        else:
            result[change.name] = _new_value(settings.get(change.name), change)
    return result


def _new_value(setting: Setting | None, change: ConfigChange) -> str:
    if change.operation not in _OPERATIONS:
        raise Refused(
            ErrorCode.invalid_request,
            f"{change.operation} is no operation for {change.name}: use 0 (set), 1 (delete), 2 (append) or "
            "3 (subtract)",
        )
    if change.value is None:
        raise Refused(
            ErrorCode.invalid_request, f"{change.name} can't be set to null: delete it to get the default"
        )
    if change.operation == Operation.SET:
        return change.value
    if setting is None or setting.kind is not SettingType.LIST:
        raise Refused(
            ErrorCode.invalid_config,
            f"{change.name} is not a list, so nothing can be appended to or subtracted from it: set it",
        )
    words = _words(setting.value)
    others = _words(change.value)
    if change.operation == Operation.APPEND:
        return ",".join(dict.fromkeys(words + others))
    return ",".join(word for word in words if word not in others)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
