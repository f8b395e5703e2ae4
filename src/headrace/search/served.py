"""An index of OpenSearch or Elasticsearch, asked by HTTP.

What was just written is found by `get` at once, and by `search` and `count` when the server has refreshed the
index, within a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from headrace.errors import StoreUnavailable, UsageError
from headrace.search.fields import Columns
from headrace.search.index import Hit, check_reach
from headrace.search.keys import key_text
from headrace.search.served_columns import kept_columns
from headrace.search.served_query import named_columns, served_query, unknown_columns
from headrace.search.server import Answer, Server, document_path


class ServedIndex:
    """See Index."""

    def __init__(self, address: str, name: str, *, server: Server | None = None) -> None:
        """Nothing is asked yet."""
        self._name = name
        self._server = server or Server(address)
        self._columns: Columns | None = None
        """As they were when they were last asked for. An index that is built anew may have others."""

    def search(
        self, query: str, *, limit: int = 10, offset: int = 0, fields: Sequence[str] | None = None
    ) -> list[Hit]:
        """The best hits."""
        check_reach(limit, offset)
        body = {"query": self._query(query, fields), "size": limit, "from": offset}
        # Half of the hits would look like all of them.
        answer = self._ask("_search", body, query, allow_partial_search_results="false")
        found = answer.body["hits"]["hits"]
        return [Hit(score=hit["_score"] or 0.0, row=hit["_source"]) for hit in found]

    def get(self, *key: object) -> dict[str, Any] | None:
        """The row with this key."""
        self._check(lambda columns: self._refuse_key(key, columns))
        path = document_path(self._name, key_text(key))
        answer = self._server.ask("GET", path, what=f"looking up a row of {self._name}", accepted={404})
        if answer.status == 404:
            _refuse_missing(answer, self._name)
            return None
        row: dict[str, Any] = answer.body["_source"]
        return row

    def count(self, query: str = "*", *, fields: Sequence[str] | None = None) -> int:
        """How many rows there are, or how many a query finds."""
        found = self._ask("_count", {"query": self._query(query, fields)}, query).body
        if found.get("_shards", {}).get("failed"):
            raise StoreUnavailable(f"counting rows of the index {self._name} failed: not all of it answers")
        return int(found["count"])

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

    def _query(self, query: str, fields: Sequence[str] | None) -> dict[str, Any]:
        """In the server's words. Where words are looked for if nothing is said, the index knows itself."""
        self._check(lambda columns: self._refuse_unknown(query, fields or (), columns))
        if query.strip() == "*":
            return {"match_all": {}}
        chosen = {} if fields is None else {"fields": list(fields)}
        return {"query_string": {"query": served_query(query), **chosen}}

    def _ask(self, verb: str, body: object, query: str, **parameters: Any) -> Answer:
        path = f"/{quote(self._name, safe='')}/{verb}"
        what = f"searching the index {self._name}"
        answer = self._server.ask("POST", path, body, what=what, accepted={400, 404}, **parameters)
        if answer.status == 400:
            raise _not_understood(query, answer.words)
        _refuse_missing(answer, self._name)
        return answer

    def _check(self, refuse: Callable[[Columns], None]) -> None:
        """Raise what does not fit the columns: those that are known, and where it does not, those of now."""
        if self._columns is not None:
            try:
                return refuse(self._columns)
            except UsageError:
                pass
        self._columns = self._asked_columns()
        if self._columns is not None:
            refuse(self._columns)
        return None

    def _asked_columns(self) -> Columns | None:
        """The columns of the index now; None where no pipeline has made it."""
        path = f"/{quote(self._name, safe='')}/_mapping"
        answer = self._server.ask(
            "GET", path, what=f"looking for the columns of the index {self._name}", accepted={404}
        )
        _refuse_missing(answer, self._name)
        found = [kept_columns(each.get("mappings", {})) for each in answer.body.values()]
        return found[0] if len(found) == 1 else None

    def _refuse_unknown(self, query: str, fields: Sequence[str], columns: Columns) -> None:
        told = f"it has {', '.join(column.name for column in columns.searched)}"
        unknown = [name for name in fields if name.startswith("_")] + unknown_columns(fields, columns)
        if unknown:
            raise UsageError(
                f"the search index has no column {', '.join(unknown)} that could be searched: {told}"
            )
        unknown = unknown_columns(named_columns(query), columns)
        if unknown:
            raise _not_understood(query, f"there is no column {', '.join(unknown)}, {told}")

    def _refuse_key(self, key: Sequence[object], columns: Columns) -> None:
        if len(key) != len(columns.key):
            raise UsageError(
                f"the key of the search index {self._name} is {', '.join(columns.key)}, and {len(key)} "
                "values were given"
            )


def _not_understood(query: str, reason: str) -> UsageError:
    return UsageError(
        f"the query {query!r} can't be understood: {reason}. Put what is to be taken as it is into double "
        'quotes: "a (b"'
    )


def _refuse_missing(answer: Answer, name: str) -> None:
    if answer.status == 404 and answer.kind == "index_not_found_exception":
        raise UsageError(f"there is no search index {name}: it is made by the pipeline that writes it")
