"""Reads the body of a request: JSON of a bounded size, as an object of a class."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from starlette.requests import Request

from headrace.events.http.problems import Problem, bad_request

_AT: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING: Final = re.compile(r"missing required field `(?P<name>[^`]+)`")


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The body, as far as it may be. Raises Problem for one that is too large or not JSON."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared != "application/json":
        raise Problem(415, "Unsupported media type", "send the command with Content-Type: application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > bytes_max:
            raise Problem(413, "Content too large", f"a command may have {bytes_max} bytes")
    return bytes(body)


def parse(body: bytes, wanted: type) -> Any:
    """An object of the class. Raises Problem that names the field that is wrong, missing or unknown."""
    try:
        value: Any = msgspec.json.decode(body or b"{}", type=wanted)
        given = msgspec.json.decode(body or b"{}")
    except msgspec.ValidationError as error:
        told, field = _told(str(error))
        raise bad_request(told, field=field) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is no JSON that can be read: {error}") from error
    known = [each.encode_name for each in msgspec.inspect.type_info(wanted).fields]  # type: ignore[attr-defined]
    for name in given:
        # A field that is misspelt must not be taken for one that was left out.
        if name not in known:
            raise bad_request(
                f"{wanted.__name__} has no field {name[:100]!r}; it has {', '.join(known) or 'none'}",
                field=name[:100],
            )
    return value


def _told(message: str) -> tuple[str, str | None]:
    """What msgspec says, and which field it means."""
    missing = _MISSING.search(message)
    at = _AT.search(message)
    path = at["path"] if at else ""
    field = ".".join(part for part in (path, missing["name"] if missing else "") if part)
    told = _AT.sub("", message)
    return f"{told} ({field})" if field and not missing else told, field or None
