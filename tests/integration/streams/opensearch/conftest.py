"""A search server of our own, in this process, with what OpenSearch documents of the few requests that are
made.

Versions (`external_gte`, also of what was deleted), conditional writes by sequence numbers, aliases,
`require_alias`, rows that are found only after a refresh, and indexes that are made by writing to them. It is
no OpenSearch: what a real one does is shown in `../search`. Here, answers are lost and rows refused at will.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.writers import batch_writer
from headrace.streams.stores import Table

PASSWORD = "open sesame/@:"
Answered = tuple[int, str]
MISSING = {"error": {"type": "index_not_found_exception", "reason": "no such index"}}
CONFLICT = {"type": "version_conflict_engine_exception", "reason": "version conflict"}


@dataclass
class Document:
    """A document as it is, or that it was deleted."""

    text: str | None
    version: int
    seq_no: int


@dataclass
class Stored:
    """An index."""

    body: dict[str, Any]
    uuid: str
    aliases: set[str]
    history: dict[str, Any] = field(default_factory=dict)
    """There once a backup was restored into it."""
    documents: dict[str, Document] = field(default_factory=dict)
    visible: dict[str, str] = field(default_factory=dict)

    def refresh(self) -> None:
        """Let all be found."""
        self.visible = {id_: found.text for id_, found in self.documents.items() if found.text is not None}


class SearchServer:
    """What a server knows. Its requests are answered one at a time."""

    def __init__(self) -> None:
        self.indexes: dict[str, Stored] = {}
        self.scrolls: dict[str, list[tuple[str, str]]] = {}
        self.requests: list[str] = []
        self.busy = 0
        """How many requests are answered with 429, and how many rows with 503."""
        self.busy_rows = 0
        self.bulk_bytes_max = 10**9
        self.refusal: Callable[[str], str | None] = lambda _row: None
        """Why a row is refused, if it is."""
        self._numbers = count()
        self._lock = threading.Lock()
        self._routes: list[tuple[str, str, Callable[..., Answered]]] = [
            ("GET", r"/", self._root),
            ("POST", r"/_aliases", self._move_aliases),
            ("POST", r"/_search/scroll", self._scroll),
            ("DELETE", r"/_search/scroll", self._end_scroll),
            ("GET", r"/([^/_][^/]*)", self._get_index),
            ("PUT", r"/([^/_][^/]*)", self._put_index),
            ("GET", r"/([^/_][^/]*)/_mapping", self._get_index),
            ("GET", r"/([^/]+)/_doc/([^/]+)", self._get),
            ("PUT", r"/([^/]+)/_doc/([^/]+)", self._put),
            ("DELETE", r"/([^/]+)/_doc/([^/]+)", self._delete),
            ("POST", r"/([^/]+)/_bulk", self._bulk),
            ("POST", r"/([^/]+)/_refresh", self._refresh),
            ("GET", r"/([^/]+)/_stats/docs,store", self._stats),
            ("POST", r"/([^/]+)/_count", self._count),
            ("POST", r"/([^/]+)/_search", self._search),
        ]

    def answer(self, method: str, path: str, parameters: dict[str, str], body: str) -> Answered:
        """Answer a request."""
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self.busy:
                self.busy -= 1
                return 429, _json({"error": {"type": "too_many_requests", "reason": "later"}})
            for wanted, pattern, route in self._routes:
                found = re.fullmatch(pattern, path)
                if wanted == method and found:
                    return route(*map(unquote, found.groups()), parameters=parameters, body=body)
        return 405, _json({"error": f"{method} {path} is not known here"})

    def rows(self, alias: str) -> dict[str, dict[str, Any]]:
        """All rows, found or not."""
        (index,) = self._indexes_of(alias)
        return {
            id_: json.loads(document.text)
            for id_, document in self.indexes[index].documents.items()
            if document.text is not None
        }

    def _indexes_of(self, name: str) -> list[str]:
        return [each for each, index in self.indexes.items() if name == each or name in index.aliases]

    def _one(self, name: str) -> Stored | None:
        names = self._indexes_of(name)
        return self.indexes[names[0]] if names else None

    def _root(self, **_: Any) -> Answered:
        return 200, _json({"version": {"distribution": "opensearch", "number": "3.0.0"}})

    def _get_index(self, name: str, **_: Any) -> Answered:
        names = self._indexes_of(name)
        if not names:
            return 404, _json(MISSING)
        return 200, _json(
            {
                each: {
                    "aliases": {alias: {} for alias in self.indexes[each].aliases},
                    "mappings": self.indexes[each].body.get("mappings", {}),
                    "settings": {"index": {"uuid": self.indexes[each].uuid, **self.indexes[each].history}},
                }
                for each in names
            }
        )

    def _put_index(self, name: str, *, body: str, **_: Any) -> Answered:
        if self._indexes_of(name):
            return 400, _json({"error": {"type": "resource_already_exists_exception", "reason": name}})
        self._make(name, json.loads(body or "{}"))
        return 200, _json({"acknowledged": True})

    def _make(self, name: str, body: dict[str, Any]) -> Stored:
        self.indexes[name] = Stored(
            body=body, uuid=f"uuid-{next(self._numbers)}", aliases=set(body.get("aliases", {}))
        )
        return self.indexes[name]

    def _get(self, name: str, id_: str, **_: Any) -> Answered:
        index = self._one(name)
        if index is None:
            return 404, _json(MISSING)
        found = index.documents.get(id_)
        if found is None or found.text is None:
            return 404, _json({"_id": id_, "found": False})
        about = _json({"_id": id_, "found": True, "_seq_no": found.seq_no, "_primary_term": 1})
        return 200, f'{about[:-1]}, "_source": {found.text}}}'

    def _put(self, name: str, id_: str, *, parameters: dict[str, str], body: str) -> Answered:
        index = self._one(name) or self._make(name, {})
        found = index.documents.get(id_)
        is_there = found is not None and found.text is not None
        if parameters.get("op_type") == "create" and is_there:
            return 409, _json({"error": CONFLICT})
        seen = parameters.get("if_seq_no")
        if seen is not None and (found is None or not is_there or int(seen) != found.seq_no):
            return 409, _json({"error": CONFLICT})
        version = found.version + 1 if found else 1
        index.documents[id_] = Document(text=body, version=version, seq_no=next(self._numbers))
        return 200 if is_there else 201, _json({"result": "updated" if is_there else "created"})

    def _delete(self, name: str, id_: str, **_: Any) -> Answered:
        index = self._one(name)
        if index is None:
            return 404, _json(MISSING)
        return (200 if index.documents.pop(id_, None) else 404), _json({"_id": id_})

    def _bulk(self, name: str, *, parameters: dict[str, str], body: str) -> Answered:
        if len(body.encode()) > self.bulk_bytes_max:
            return 413, _json({"error": "too large"})
        lines = iter(body.splitlines())
        items = []
        for line in lines:
            ((verb, about),) = json.loads(line).items()
            text = next(lines) if verb == "index" else None
            items.append({verb: self._change(name, parameters, about, text)})
        return 200, _json({"items": items})

    def _change(
        self, name: str, parameters: dict[str, str], about: dict[str, Any], text: str | None
    ) -> dict[str, Any]:
        if self.busy_rows:
            self.busy_rows -= 1
            return {"status": 503, "error": {"type": "unavailable_shards_exception", "reason": "later"}}
        if name in self.indexes or not self._indexes_of(name):
            if parameters.get("require_alias") == "true":
                return {"status": 404, "error": {"type": "index_not_found_exception", "reason": "no alias"}}
            self._make(name, {})
        if text is not None and (reason := self.refusal(text)):
            cause = {"type": "illegal_argument_exception", "reason": reason}
            error = {"type": "mapper_parsing_exception", "reason": "failed to parse", "caused_by": cause}
            return {"status": 400, "error": error}
        index = self._one(name)
        assert index is not None
        found = index.documents.get(about["_id"])
        assert about["version_type"] == "external_gte"
        if found is not None and about["version"] < found.version:
            return {"status": 409, "error": CONFLICT}
        number = next(self._numbers)
        index.documents[about["_id"]] = Document(text=text, version=about["version"], seq_no=number)
        is_there = found is not None and found.text is not None
        if text is None:
            status, result = (200, "deleted") if is_there else (404, "not_found")
            return {"status": status, "result": result}
        return {"status": 200 if is_there else 201, "result": "updated" if is_there else "created"}

    def _refresh(self, name: str, **_: Any) -> Answered:
        index = self._one(name)
        if index is None:
            return 404, _json(MISSING)
        index.refresh()
        return 200, "{}"

    def _stats(self, name: str, **_: Any) -> Answered:
        index = self._one(name)
        if index is None:
            return 404, _json(MISSING)
        size_bytes = sum(len(text) for text in index.visible.values())
        sizes = {"docs": {"count": len(index.visible)}, "store": {"size_in_bytes": size_bytes}}
        return 200, _json({"_all": {"primaries": sizes}})

    def _found(self, name: str, body: str) -> list[tuple[str, str]] | Answered:
        index = self._one(name)
        if index is None:
            return 404, _json(MISSING)
        query = json.loads(body)["query"]
        if "match_all" in query:
            return sorted(index.visible.items())
        asked = query["query_string"]
        if asked["query"].count("(") != asked["query"].count(")"):
            error = {"type": "query_shard_exception", "reason": f"Failed to parse query [{asked['query']}]"}
            return 400, _json({"error": {"type": "search_phase_execution_exception", "root_cause": [error]}})
        fields = asked.get("fields") or index.body["settings"]["index.query.default_field"]
        words = set(asked["query"].lower().split())
        return [
            (id_, text)
            for id_, text in sorted(index.visible.items())
            if any(words & set(str(json.loads(text).get(name)).lower().split()) for name in fields)
        ]

    def _count(self, name: str, *, body: str, **_: Any) -> Answered:
        found = self._found(name, body)
        return found if isinstance(found, tuple) else (200, _json({"count": len(found)}))

    def _search(self, name: str, *, parameters: dict[str, str], body: str) -> Answered:
        found = self._found(name, body)
        if isinstance(found, tuple):
            return found
        size, start = json.loads(body)["size"], json.loads(body).get("from", 0)
        if "scroll" not in parameters:
            return 200, _hits(found[start : start + size], "", len(found))
        scroll = f"scroll-{next(self._numbers)}"
        self.scrolls[scroll] = found[size:]
        return 200, _hits(found[:size], scroll, len(found))

    def _scroll(self, *, body: str, **_: Any) -> Answered:
        scroll = json.loads(body)["scroll_id"]
        page, self.scrolls[scroll] = self.scrolls[scroll][:2], self.scrolls[scroll][2:]
        return 200, _hits(page, scroll, 0)

    def _end_scroll(self, *, body: str, **_: Any) -> Answered:
        del self.scrolls[json.loads(body)["scroll_id"]]
        return 200, "{}"

    def _move_aliases(self, *, body: str, **_: Any) -> Answered:
        for action in json.loads(body)["actions"]:
            ((verb, about),) = action.items()
            match verb:
                case "add":
                    self.indexes[about["index"]].aliases.add(about["alias"])
                case "remove":
                    self.indexes[about["index"]].aliases.remove(about["alias"])
                case "remove_index":
                    del self.indexes[about["index"]]
        return 200, _json({"acknowledged": True})


def _json(value: object) -> str:
    return json.dumps(value)


def _hits(found: list[tuple[str, str]], scroll: str, total: int) -> str:
    hits = ", ".join(f'{{"_id": {_json(id_)}, "_score": 1.0, "_source": {text}}}' for id_, text in found)
    counted = _json({"value": total, "relation": "eq"})
    return f'{{"_scroll_id": {_json(scroll)}, "hits": {{"total": {counted}, "hits": [{hits}]}}}}'


class Handler(BaseHTTPRequestHandler):
    """Reads requests, and writes answers."""

    protocol_version = "HTTP/1.1"
    search: SearchServer

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        login = "Basic " + base64.b64encode(f"headrace:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") == login:
            status, text = self.search.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body)
        else:
            status, text = 401, _json({"error": "who are you?"})
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the names that the library calls

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that answers at its URL."""

    search: SearchServer
    url: str


@pytest.fixture
def server() -> Iterator[Running]:
    """A server with nothing on it."""
    search = SearchServer()
    handler = type("OurHandler", (Handler,), {"search": search})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Running(
            search=search, url=f"http://headrace:open%20sesame%2F%40%3A@127.0.0.1:{http.server_port}"
        )
        http.shutdown()
        thread.join()


@pytest.fixture
def writer(tmp_path: Any) -> Callable[..., BatchWriter]:
    """A writer as each start of a query with a checkpoint makes one."""

    def make_writer(
        target: Table,
        *,
        query_id: str = "query-1",
        pipeline: str = "orders",
        has_checkpoint: bool = True,
    ) -> BatchWriter:
        checkpoint = tmp_path / f"checkpoint-{query_id}"
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        for batch_id in range(10):
            (checkpoint / "offsets" / str(batch_id)).write_text(f"input {batch_id}")
        context = WriteContext(
            pipeline=pipeline,
            query_id=query_id,
            bootstrap="127.0.0.1:1",
            guarantee="exactly-once",
            checkpoint=checkpoint if has_checkpoint else None,
        )
        return batch_writer(target, context)

    return make_writer
