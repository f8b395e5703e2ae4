"""Many rows in one request, and what the server says of each. No I/O.

A row has a version: the number of the run, and below it the id of the batch. The server takes a row, or its
deletion, unless it has a newer version of it. So a row that is written again changes nothing, and what comes
late, from a task that was given up or a run that was replaced, is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from headrace.search.server import BLOCKED, BUSY

BATCH_BITS: Final = 40
"""How much of a version is the batch: a trillion of them, and eight million runs."""
ID_BYTES_MAX: Final = 512
"""The longest id that servers take."""
ACTIONS_MAX: Final = 1_000
BYTES_MAX: Final = 5 * 2**20
"""What one request holds; more only where a single row is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A row that is to be written, or deleted."""

    id: str
    row: str | None
    """Its JSON; None where it is to be deleted."""


class Outcome(Enum):
    """What has become of it."""

    DONE = "done"
    NEWER = "a newer version is there"
    AGAIN = "the server can't take it now"
    REFUSED = "the server does not take it"
    GONE = "its index is gone"
    FAILED = "something else"


_OUTCOMES: Final = {
    400: Outcome.REFUSED,
    404: Outcome.GONE,
    409: Outcome.NEWER,
    413: Outcome.REFUSED,
    **dict.fromkeys(BUSY, Outcome.AGAIN),
}
"""By the status of an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An action, what has become of it, and what the server says."""

    action: Action
    outcome: Outcome
    words: str


def version_of(run: int, batch_id: int) -> int:
    """The version of all rows of a batch."""
    assert 0 <= batch_id < 1 << BATCH_BITS, "no query has that many batches"
    return run << BATCH_BITS | batch_id


def lines_of(actions: Iterable[Action], version: int) -> bytes:
    """What is sent."""
    lines = []
    for action in actions:
        about = {"_id": action.id, "version": version, "version_type": "external_gte"}
        lines.append(json.dumps({"delete" if action.row is None else "index": about}))
        if action.row is not None:
            lines.append(action.row)
    return "".join(f"{line}\n" for line in lines).encode()


def in_requests(
    actions: Iterable[Action], *, actions_max: int = ACTIONS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[Action]]:
    """The actions, as many at a time as one request holds."""
    chosen: list[Action] = []
    size_bytes = 0
    for action in actions:
        action_bytes = len(action.id.encode()) + len((action.row or "").encode())
        if chosen and (len(chosen) == actions_max or size_bytes + action_bytes > bytes_max):
            yield chosen
            chosen, size_bytes = [], 0
        chosen.append(action)
        size_bytes += action_bytes
    if chosen:
        yield chosen


def judge(answer: dict[str, Any], actions: Sequence[Action]) -> list[Judged]:
    """What has become of each; raises ValueError for an answer that does not fit what was asked."""
    items = answer.get("items")
    if not isinstance(items, list) or len(items) != len(actions):
        raise ValueError("the answer does not tell of each row")
    return [_judged(action, item) for action, item in zip(actions, items, strict=True)]


def _judged(action: Action, item: dict[str, dict[str, Any]]) -> Judged:
    (told,) = item.values()
    error = told.get("error") or {}
    outcome = _outcome(int(told["status"]), str(error.get("type", "")), is_delete=action.row is None)
    cause = error.get("caused_by") or {}
    words = "; ".join(str(each["reason"]) for each in (error, cause) if each.get("reason"))
    return Judged(action=action, outcome=outcome, words=words or str(told["status"]))


def _outcome(status: int, kind: str, *, is_delete: bool) -> Outcome:
    if kind in BLOCKED:
        # It has the status of a refusal, and is not about the row.
        return Outcome.AGAIN
    if status < 300 or (status == 404 and is_delete and not kind):
        # What is not there need not be deleted; the server remembers that it was.
        return Outcome.DONE
    return _OUTCOMES.get(status, Outcome.FAILED)
