"""Records as the page of a topic shows them: bytes as text that is bounded, whatever they hold. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TEXT_LENGTH_MAX: Final = 2_000
HEADER_COUNT_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """One record of a topic, for a person to read."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: str | None
    value: str | None
    """None is a tombstone."""
    size_bytes: int
    headers: tuple[tuple[str, str | None], ...]


def as_text(data: bytes | None, length_max: int = TEXT_LENGTH_MAX) -> str | None:
    """UTF-8 as it is, other bytes in hexadecimal; what is longer is cut, which an ellipsis shows."""
    if data is None:
        return None
    head = data[: length_max * 4]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # The cut may have gone through a character.
        is_cut_through = len(head) < len(data) and error.start >= len(head) - 3
        text = head[: error.start].decode() if is_cut_through else f"0x{data[: length_max // 2].hex()}"
    is_whole = len(head) == len(data) and len(text) <= length_max
    return text[:length_max] if is_whole else text[: length_max - 1] + "…"


def newest(records: list[TopicRecord], count: int) -> list[TopicRecord]:
    """The newest records by their timestamps, newest first; those of a partition stay in its order."""
    ordered = sorted(records, key=lambda each: (each.timestamp_ms or 0, each.partition, each.offset))
    return ordered[::-1][:count]
