"""Changes are written down with who made them and from where."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace.config import Address
from headrace.kafka.audit import audit
from headrace.kafka.services import Call


def test_an_audit_line_says_what_was_changed_by_whom_and_from_where(caplog: pytest.LogCaptureFixture) -> None:
    services: Any = None
    call = Call(
        services=services,
        client_id="admin\n",
        host="10.0.0.7",
        port=51_234,
        address=Address("10.0.0.1", 9_092),
        api_version=1,
        principal="User:ann",
    )
    with caplog.at_level(logging.INFO, logger="headrace.audit"):
        audit(call, "topic.delete", topic="orders")
    (record,) = caplog.records
    assert record.getMessage() == (
        "topic.delete topic=orders, by User:ann from 10.0.0.7:51234, client 'admin\\n'"
    )
    assert vars(record)["fields"] == {
        "action": "topic.delete",
        "principal": "User:ann",
        "client": "10.0.0.7:51234",
        "client_id": "admin\n",
        "topic": "orders",
    }
