"""What was deleted, reset or reconfigured, by whom and from where: lines of the logger `headrace.audit`.

    audit(call, "topic.delete", topic="orders")
    -> topic.delete topic=orders, by User:alice from 10.0.0.7:51234, client 'admin'

A line is written when the change has been made, not when it was asked for. Lines have the level INFO, which
`headrace broker` shows by default.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.logs import fields as log_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kafka.services import Call

logger: Final = logging.getLogger("headrace.audit")

LISTED_COUNT_MAX: Final = 20


def listing(names: Iterable[str]) -> str:
    """The names with commas, the first few of many."""
    all_names = list(names)
    shown = ",".join(all_names[:LISTED_COUNT_MAX])
    hidden_count = len(all_names) - LISTED_COUNT_MAX
    return f"{shown} and {hidden_count} more" if hidden_count > 0 else shown


def audit(call: Call, action: str, **fields: object) -> None:
    """Write down a change. Name what was changed in the fields, never a secret."""
    client = f"{call.host}:{call.port}"
    what = " ".join(f"{name}={value}" for name, value in fields.items())
    logger.info(
        "%s %s, by %s from %s, client %r",
        action,
        what,
        call.principal,
        client,
        call.client_id,
        extra=log_fields(
            action=action, principal=call.principal, client=client, client_id=call.client_id, **fields
        ),
    )
