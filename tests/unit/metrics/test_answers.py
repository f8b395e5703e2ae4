"""Which HTTP requests are answered."""

from __future__ import annotations

import json

import pytest

from headrace.config import Address
from headrace.metrics.answers import PATHS, live, own_hosts, ready, refusal

HOSTS = own_hosts(Address("127.0.0.1", 9404))


@pytest.mark.parametrize("host", ["127.0.0.1:9404", "localhost:9404", "[::1]:9404", "LOCALHOST:9404"])
@pytest.mark.parametrize("path", PATHS)
def test_a_client_on_this_machine_is_answered(host: str, path: str) -> None:
    assert refusal("GET", path, [host], HOSTS) is None
    assert refusal("HEAD", path, [host], HOSTS) is None


@pytest.mark.parametrize(
    "hosts",
    [[], ["evil.example:9404"], ["127.0.0.1"], ["127.0.0.1:9405"], ["127.0.0.1:9404", "127.0.0.1:9404"]],
)
def test_a_host_that_is_not_ours_is_refused_as_in_dns_rebinding(hosts: list[str]) -> None:
    answer = refusal("GET", "/metrics", hosts, HOSTS)
    assert answer is not None
    assert answer.status == 403
    assert b"use 127.0.0.1:9404" in answer.body


def test_where_others_are_allowed_any_host_is_good() -> None:
    assert refusal("GET", "/metrics", ["10.1.2.3:9404"], None) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "X" * 1_000])
def test_nothing_can_be_changed(method: str) -> None:
    answer = refusal(method, "/metrics", ["localhost:9404"], HOSTS)
    assert answer is not None
    assert answer.status == 405
    assert len(answer.body) < 100


def test_other_paths_say_which_there_are() -> None:
    answer = refusal("GET", "/", ["localhost:9404"], HOSTS)
    assert answer is not None
    assert (answer.status, answer.body) == (404, b"There are /metrics, /health/live, /health/ready.\n")


def test_health_says_why_it_is_bad() -> None:
    assert live().status == 200
    assert ready(None).status == 200
    unready = ready("the disk is full")
    assert unready.status == 503
    assert json.loads(unready.body) == {"ready": False, "reason": "the disk is full"}
