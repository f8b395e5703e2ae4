"""What was deleted of queues, by whom and from where: lines of the logger `headrace.audit`.

audit(session, "queue.delete", queue="mails", messages=3)
-> queue.delete queue=mails messages=3, by ann from 10.0.0.7:51234
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.logs import fields as log_fields

if TYPE_CHECKING:
    from headrace.queue.amqp.session import Session

logger: Final = logging.getLogger("headrace.audit")


def audit(session: Session, action: str, **fields: object) -> None:
    """Write down a change that has been made."""
    what = " ".join(f"{name}={value}" for name, value in fields.items())
    logger.info(
        "%s %s, by %s from %s",
        *(action, what, session.user, session.client),
        extra=log_fields(action=action, principal=session.user, client=session.client, **fields),
    )
