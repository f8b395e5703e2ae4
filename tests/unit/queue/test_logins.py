"""What PLAIN and AMQPLAIN say."""

from __future__ import annotations

import pytest

from headrace.queue.fields import write_table
from headrace.queue.logins import plain_token
from headrace.security.mechanisms import LoginFailed


def test_amqplain_says_what_plain_does() -> None:
    table = write_table({"LOGIN": "ann", "PASSWORD": "sécret"})
    assert plain_token(table[4:]) == "\0ann\0sécret".encode()


@pytest.mark.parametrize("response", [b"", b"\x05LOGIN", write_table({"LOGIN": "ann"})[4:], b"\xff" * 20])
def test_what_is_not_amqplain_fails(response: bytes) -> None:
    with pytest.raises(LoginFailed):
        plain_token(response)
