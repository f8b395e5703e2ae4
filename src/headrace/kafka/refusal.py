"""Why a request, or a part of one, is not carried out: Kafka's code, and in words what to do about it."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from headrace.errors import ConfigError, HeadraceError, TopicExists, UnknownTopic, UsageError
from headrace.kafka.handlers.produce import error_code_of

_CODES: Final = (
    (TopicExists, ErrorCode.topic_already_exists),
    (UnknownTopic, ErrorCode.unknown_topic_or_partition),
    (ConfigError, ErrorCode.invalid_config),
)


class Refused(UsageError):
    """What a client asked for can't be, with the code that tells it so."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def code_of(error: HeadraceError) -> ErrorCode:
    """What to call an error on the wire."""
    if isinstance(error, Refused):
        return error.error_code
    return next((code for cause, code in _CODES if isinstance(error, cause)), error_code_of(error))
