"""Answers that say what is wrong: `application/problem+json`, as RFC 9457 has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

PROBLEM_JSON: Final = "application/problem+json"


class Problem(Exception):
    """A request that can't be answered as it would like to be."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = dict(more or {})

    def response(self) -> Response:
        """The answer."""
        body = {"title": self.title, "status": self.status, "detail": self.detail, **self.more}
        return Response(
            msgspec.json.encode(body),
            status_code=self.status,
            media_type=PROBLEM_JSON,
            headers={"Cache-Control": "no-store", **self.headers},
        )


def bad_request(detail: str, *, field: str | None = None) -> Problem:
    """What was sent can't be understood; `field` says where."""
    return Problem(400, "Bad request", detail, more={} if field is None else {"field": field})


def not_found(detail: str) -> Problem:
    """There is nothing of that name."""
    return Problem(404, "Not found", detail)
