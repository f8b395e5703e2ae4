"""An index of OpenSearch or Elasticsearch, asked by HTTP.

What was just written is found by `get` at once, and by `search` and `count` when the server has refreshed the
index, within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from headrace.errors import UsageError
from headrace.search.index import Hit, check_reach
from headrace.search.keys import key_text
from headrace.search.server import Answer, Server, document_path


class ServedIndex:
    """See Index."""

    def __init__(self, address: str, name: str, *, server: Server | None = None) -> None:
        """Nothing is asked yet."""
        self._name = name
        self._server = server or Server(address)

    def search(
        self, query: str, *, limit: int = 10, offset: int = 0, fields: Sequence[str] | None = None
    ) -> list[Hit]:
        """The best hits."""
        check_reach(limit, offset)
        body = {"query": _query(query, fields), "size": limit, "from": offset}
        found = self._ask("_search", body, query).body["hits"]["hits"]
        return [Hit(score=hit["_score"] or 0.0, row=hit["_source"]) for hit in found]

    def get(self, *key: object) -> dict[str, Any] | None:
        """The row with this key."""
        path = document_path(self._name, key_text(key))
        answer = self._server.ask("GET", path, what=f"looking up a row of {self._name}", accepted={404})
        if answer.status == 404:
            _refuse_missing(answer, self._name)
            return None
        row: dict[str, Any] = answer.body["_source"]
        return row

    def count(self, query: str = "*", *, fields: Sequence[str] | None = None) -> int:
        """How many rows there are, or how many a query finds."""
        return int(self._ask("_count", {"query": _query(query, fields)}, query).body["count"])

    def close(self) -> None:
        """Let go of connections."""
        self._server.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _ask(self, verb: str, body: object, query: str) -> Answer:
        path = f"/{quote(self._name, safe='')}/{verb}"
        what = f"searching the index {self._name}"
        answer = self._server.ask("POST", path, body, what=what, accepted={400, 404})
        if answer.status == 400:
            raise UsageError(
                f"the query {query!r} can't be understood: {answer.words}. Put what is to be taken as it is "
                'into double quotes: "a (b"'
            )
        _refuse_missing(answer, self._name)
        return answer


def _query(query: str, fields: Sequence[str] | None) -> dict[str, Any]:
    """In the server's words. Where words are looked for if nothing is said, the index knows itself."""
    if query.strip() == "*":
        return {"match_all": {}}
    chosen = {} if fields is None else {"fields": list(fields)}
    return {"query_string": {"query": query, **chosen}}


def _refuse_missing(answer: Answer, name: str) -> None:
    if answer.status == 404 and answer.kind == "index_not_found_exception":
        raise UsageError(f"there is no search index {name}: it is made by the pipeline that writes it")
