"""Versions of streams as entity tags: `"3"` is version 3."""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers

from headrace.events.http.problems import bad_request
from headrace.events.records import ANY, NONE

_TAG: Final = re.compile(r'"(\d{1,18})"')


def etag(version: int) -> str:
    """The tag of a version."""
    return f'"{version}"'


def expected_version(headers: Headers) -> int:
    """Which version a command expects: that of `If-Match`, none with `If-None-Match: *`, else any."""
    wanted, unwanted = headers.get("if-match"), headers.get("if-none-match")
    if unwanted is not None:
        if unwanted.strip() != "*" or wanted is not None:
            raise bad_request(
                "a command takes If-None-Match: * for a new stream, or If-Match", field="If-None-Match"
            )
        return NONE
    if wanted is None:
        return ANY
    found = _TAG.fullmatch(wanted.strip())
    if found is None:
        raise bad_request(
            f'If-Match is {wanted[:50]!r}: send the ETag of the stream as it was read, such as "3"',
            field="If-Match",
        )
    return int(found[1])


def is_unchanged(headers: Headers, version: int) -> bool:
    """Whether who asks has this version already."""
    tags = headers.get("if-none-match", "")
    return any(tag.strip().removeprefix("W/") in {"*", etag(version)} for tag in tags.split(","))
