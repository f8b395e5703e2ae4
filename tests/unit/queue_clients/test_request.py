"""The headers of a pushed message: signed, and safe against whoever publishes."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.queue_clients.delivery import Delivery
from headrace.queue_clients.push.request import check_headers, request_headers, signature
from headrace.testing.deliveries import delivery


def _headers(message: Delivery, message_id: str = "m1", secret: str = "") -> dict[str, str]:
    return request_headers(
        message, message_id=message_id, queue="orders", attempt=2, now_s=1_700_000_000, secret=secret
    )


def test_the_signature_is_that_of_the_standard_webhooks_specification() -> None:
    # The example of the specification's own libraries.
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}') == expected


def test_a_signature_covers_id_time_and_body() -> None:
    signed = {
        signature("secret", "a", 1, b"x"),
        signature("secret", "b", 1, b"x"),
        signature("secret", "a", 2, b"x"),
        signature("secret", "a", 1, b"y"),
        signature("other", "a", 1, b"x"),
    }
    assert len(signed) == 5


def test_a_request_says_where_its_message_comes_from() -> None:
    headers = _headers(delivery(exchange="shop", routing_key="order.new", headers={"tenant": "acme"}))
    assert headers["webhook-id"] == "m1"
    assert headers["webhook-timestamp"] == "1700000000"
    assert headers["x-headrace-queue"] == "orders"
    assert headers["x-headrace-exchange"] == "shop"
    assert headers["x-headrace-routing-key"] == "order.new"
    assert headers["x-headrace-attempt"] == "2"
    assert headers["x-headrace-headers"] == '{"tenant": "acme"}'
    assert "webhook-signature" not in headers
    assert headers["content-type"] == "application/octet-stream"


def test_the_type_of_the_content_is_kept_where_it_is_one() -> None:
    assert _headers(delivery(content_type="application/json"))["content-type"] == "application/json"
    assert _headers(delivery(content_type="a/b\r\nx: y"))["content-type"] == "application/octet-stream"


@given(st.text(max_size=40), st.text(max_size=40), st.dictionaries(st.text(max_size=9), st.text(max_size=9)))
def test_nothing_that_a_publisher_chooses_breaks_out_of_its_header(
    key: str, message_id: str, own: dict[str, str]
) -> None:
    message = delivery(routing_key=key, exchange=key, headers=own, content_type=key)
    headers = _headers(message, message_id, secret="s")
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(method="POST", target="/", headers=[("host", "h"), *headers.items()])
    sent = connection.send(request) or b""
    assert sent.count(b"\r\n") == len(headers) + 3  # request line, host, headers, end


def test_headers_of_our_own_that_cannot_be_sent_are_refused() -> None:
    check_headers({"authorization": "Bearer x"})
    for headers in ({"a b": "x"}, {"": "x"}, {"x": "a\r\nb: c"}, {"x": "ä"}):
        with pytest.raises(ConfigError, match="header"):
            check_headers(headers)


def test_a_secret_that_is_no_base64_is_refused() -> None:
    with pytest.raises(ConfigError, match="base64"):
        signature("whsec_***", "a", 1, b"")
