"""What the shell is offered when a user presses Tab: names of topics and groups, where a broker answers."""

from __future__ import annotations

from typing import Final

import typer
from confluent_kafka import KafkaException

from headrace.cli.client import admin_client
from headrace.config import default_bootstrap

COMPLETION_TIMEOUT_S: Final = 1.0
"""A shell that waits longer is worse than one that offers nothing."""


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """Topics whose names begin so."""
    admin = admin_client(_bootstrap(context))
    try:
        names = admin.list_topics(timeout=COMPLETION_TIMEOUT_S).topics
    except KafkaException:
        return []
    return sorted(name for name in names if name.startswith(incomplete))


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """Groups whose names begin so."""
    try:
        listed = admin_client(_bootstrap(context)).list_consumer_groups(request_timeout=COMPLETION_TIMEOUT_S)
        groups = listed.result(COMPLETION_TIMEOUT_S).valid
    except (KafkaException, TimeoutError):
        return []
    return sorted(group.group_id for group in groups if group.group_id.startswith(incomplete))


def _bootstrap(context: typer.Context) -> str:
    return str(context.params.get("bootstrap") or default_bootstrap())
