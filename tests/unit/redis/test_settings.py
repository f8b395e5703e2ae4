"""The settings that the embedded Redis is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.config import Address, RedisConfig
from headrace.errors import ConfigError
from headrace.redis.settings import settings

PLACES: dict[str, Any] = {"data": Path("/a b/data"), "pid_file": Path("/a b/redis.pid"), "password": "secret"}


def lines(text: str) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in text.splitlines())


def test_what_is_answered_is_on_disk_unless_tests_ask_for_less() -> None:
    kept = lines(settings(**PLACES, listen=None, socket=Path("/s"), is_durable=True))
    assert (kept["appendonly"], kept["appendfsync"], kept["save"]) == ('"yes"', '"always"', '""')
    assert kept["maxmemory-policy"] == '"noeviction"'
    quick = lines(settings(**PLACES, listen=None, socket=Path("/s"), is_durable=False))
    assert quick["appendfsync"] == '"no"'


def test_it_listens_on_a_socket_or_on_an_address_and_always_wants_the_password() -> None:
    by_socket = lines(settings(**PLACES, listen=None, socket=Path("/run/s"), is_durable=True))
    assert (by_socket["port"], by_socket["unixsocket"]) == ('"0"', '"/run/s"')
    assert "bind" not in by_socket
    by_port = lines(settings(**PLACES, listen=Address("127.0.0.1", 7001), socket=None, is_durable=True))
    assert (by_port["bind"], by_port["port"]) == ('"127.0.0.1"', '"7001"')
    assert "unixsocket" not in by_port
    assert by_socket["requirepass"] == by_port["requirepass"] == '"secret"'


def test_names_of_directories_may_hold_anything() -> None:
    odd = {**PLACES, "data": Path('/with "quotes" and \\')}
    text = settings(**odd, listen=None, socket=Path("/s"), is_durable=True)
    assert 'dir "/with \\"quotes\\" and \\\\"\n' in text


def test_only_this_machine_may_reach_it() -> None:
    with pytest.raises(ConfigError, match="for this machine only"):
        RedisConfig(listen=Address("10.0.0.1", 6379))
    with pytest.raises(ConfigError, match="stop_s_max"):
        RedisConfig(stop_s_max=0)
