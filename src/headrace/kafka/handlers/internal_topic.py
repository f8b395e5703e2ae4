"""Handlers that write to one of the broker's own topics are called once that topic is there.

It is created when it is first needed. A handler checks and appends in one step, so it is not called before:
what it had checked could be wrong by the time at which the topic is there. When the topic could not be
created, the handler is called all the same, finds it missing, and answers with an error in its own words.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from headrace.kafka.answer import Pending, Silence, follow
from headrace.kafka.services import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.services import Call

    Handler = Callable[[Call, Any], Any]

PARTITION_COUNT: Final = 1


def needing(topic: str, handler: Handler) -> Handler:
    """The handler, called once the internal topic has been created."""

    @wraps(handler)
    def handle(call: Call, request: Any) -> Any:
        services = call.services
        if topic in services.store.topics:
            return handler(call, request)
        pending: Pending[Any] = Pending()
        is_abandoned = False

        def abandon() -> None:
            nonlocal is_abandoned
            is_abandoned = True

        def go_on(_outcome: object) -> None:
            # A request of a client that has gone meanwhile must not begin anything that only it could end.
            if is_abandoned:
                return
            try:
                outcome = handler(call, request)
            except Exception:
                # A mistake of ours: as anywhere else, it closes the connection.
                pending.resolve(Silence.CLOSE)
                raise
            follow(pending, outcome)

        pending.on_abandoned = abandon
        services.topics.ensure(topic, PARTITION_COUNT, INTERNAL_TOPICS[topic], go_on)
        return pending

    return handle
