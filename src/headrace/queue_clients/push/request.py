"""A message as the headers of an HTTP request. No I/O.

    webhook-id, webhook-timestamp, webhook-signature    as the Standard Webhooks specification has them
    x-headrace-queue, -exchange, -routing-key           where the message comes from, percent-encoded
    x-headrace-attempt, x-headrace-redelivered          how often it was tried
    x-headrace-headers                                  the message's own headers, as JSON

The signature is `v1,` and the HMAC-SHA256 of `<id>.<timestamp>.<body>`, in base64. A secret that begins with
`whsec_` is base64 after that; any other is taken as it is. A receiver checks the signature, refuses
timestamps that are too old, and tells by the id what it has had already.

Publishers choose names, keys and headers of messages. Nothing of that gets into a header as it is, so that
nobody can add a header or a request of his own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from headrace.config import KIB
from headrace.errors import ConfigError
from headrace.queue_clients.delivery import Delivery

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  # that is what it begins with, not a secret
HEADERS_BYTES_MAX: Final = 8 * KIB
_SAFE: Final = "!#$&'()*+,/:;=?@[]-._~ "
_CONTENT_TYPE: Final = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(; ?[\w-]{1,40}=[\w.+-]{1,100})?")
_DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def request_headers(
    delivery: Delivery, *, message_id: str, queue: str, attempt: int, now_s: int, secret: str
) -> dict[str, str]:
    """The headers of one attempt."""
    content_type = delivery.properties.content_type or ""
    shown_id = encoded(message_id)
    headers = {
        "content-type": content_type if _CONTENT_TYPE.fullmatch(content_type) else _DEFAULT_CONTENT_TYPE,
        "webhook-id": shown_id,
        "webhook-timestamp": str(now_s),
        "x-headrace-queue": encoded(queue),
        "x-headrace-exchange": encoded(delivery.exchange),
        "x-headrace-routing-key": encoded(delivery.routing_key),
        "x-headrace-attempt": str(attempt),
        "x-headrace-redelivered": "true" if delivery.redelivered else "false",
    }
    own = json.dumps(dict(delivery.headers), default=str) if delivery.headers else ""
    if own and len(own) <= HEADERS_BYTES_MAX:
        headers["x-headrace-headers"] = own
    if secret:
        headers["webhook-signature"] = signature(secret, shown_id, now_s, delivery.body)
    return headers


def signature(secret: str, message_id: str, now_s: int, body: bytes) -> str:
    """The signature of a request."""
    signed = b".".join((message_id.encode(), str(now_s).encode(), body))
    digest = hmac.new(key_of(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def key_of(secret: str) -> bytes:
    """The key that a secret stands for."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ConfigError(f"a secret that begins with {SECRET_PREFIX} goes on in base64") from error


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that can't be sent."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise ConfigError(f"{name!r} can't be a header of a request, or its value can't: use plain ASCII")


def encoded(text: str) -> str:
    """A text as it may stand in a header: what is not printable ASCII is percent-encoded."""
    return quote(text, safe=_SAFE, errors="replace").strip()
