"""What holds for search indexes holds in a directory and on a real OpenSearch: one contract, two backends.

OpenSearch is one server for all tests of a worker; each test has names of its own there. It takes requests of
1 MiB, and has room for few at a time, so that its refusals are met with, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol

import httpx
import pytest

import headrace.streams as hr
from headrace.errors import SetupError
from headrace.search import Index, layout, open_index
from headrace.search.fields import Columns
from headrace.search.keys import key_text
from headrace.search.server import connected
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.ledger import NO_DIGEST, Entry
from headrace.streams.sinks.opensearch import bulk, place
from headrace.streams.sinks.opensearch.mapping import rows_alias
from headrace.streams.sinks.run_ledger import Ledger
from headrace.streams.sinks.search.documents import document
from headrace.streams.sinks.search.generation import ensure
from headrace.streams.sinks.writers import batch_writer
from headrace.streams.stores import Table
from real_opensearch import OpenSearch

BODY_BYTES_MAX: Final = 2**20
SETTINGS: Final = {
    "http.max_content_length": f"{BODY_BYTES_MAX}b",
    "thread_pool.write.size": "1",
    "thread_pool.write.queue_size": "4",
}
NUMBERS = count()
LEDGER: Final = Ledger(run=1, entry=Entry(next_batch_id=1, query_id="q", task_count=1, digest=NO_DIGEST))
Rows = Mapping[Any, dict[str, Any] | None]


class Backend(Protocol):
    """Where indexes are, and what can be done there behind a pipeline's back."""

    @property
    def address(self) -> str:
        """As a pipeline is told of it."""

    @property
    def name(self) -> str:
        """A name that no other test has."""

    def write(self, columns: Columns, rows: Rows) -> None:
        """Write rows by their keys, or delete them, without a pipeline."""

    def settle(self) -> None:
        """Let the next search find all that is written."""

    def lose(self) -> None:
        """Have the index be gone."""


@dataclass(frozen=True, kw_only=True)
class InDirectory:
    """Tantivy's files."""

    path: Path
    name: str = "products"

    @property
    def address(self) -> str:
        """The directory above."""
        return str(self.path)

    def write(self, columns: Columns, rows: Rows) -> None:
        """With one commit."""
        with ensure(self.path / self.name, columns).writing() as changes:
            for id_, row in rows.items():
                key = key_text([id_])
                if row is None:
                    changes.delete(key)
                else:
                    changes.put(key, changes.document(document(columns, key, json.dumps(row))))
            changes.commit("products", LEDGER)

    def settle(self) -> None:
        """A commit is found at once."""

    def lose(self) -> None:
        """Remove its files."""
        assert layout.place(self.path / self.name) is not None
        shutil.rmtree(self.path / self.name)


@dataclass(frozen=True, kw_only=True)
class OnServer:
    """An index of OpenSearch."""

    server: OpenSearch
    name: str

    @property
    def address(self) -> str:
        """The server."""
        return self.server.url

    def write(self, columns: Columns, rows: Rows) -> None:
        """In one request."""
        with connected(self.address) as server:
            generation = place.ensure(server, self.name, columns)
            actions = [
                bulk.Action(id=key_text([id_]), row=None if row is None else json.dumps(row))
                for id_, row in rows.items()
            ]
            path = f"/{rows_alias(generation.name)}/_bulk"
            answer = server.ask("POST", path, bulk.lines_of(actions, next(NUMBERS) + 1), what="writing")
            judged = bulk.judge(answer.body, actions)
            assert {each.outcome for each in judged} == {bulk.Outcome.DONE}, judged
        self.settle()

    def settle(self) -> None:
        """Within a second, or when it is asked for."""
        self.ask("POST", f"/{self.name}/_refresh")

    def lose(self) -> None:
        """Delete what the alias stands for."""
        for generation in self.ask("GET", f"/{self.name}"):
            self.ask("DELETE", f"/{generation}")

    def ask(self, method: str, path: str, body: object = None, *, accepted: int = 200) -> Any:
        """Ask the server for what a pipeline would not."""
        answer = httpx.request(method, f"{self.address}{path}", json=body, timeout=240)
        assert answer.status_code in {200, accepted}, answer.text
        return answer.json()


@pytest.fixture(scope="session")
def opensearch() -> Iterator[OpenSearch]:
    """A server for all tests."""
    server = OpenSearch(settings=SETTINGS)
    try:
        server.start()
    except SetupError as error:
        pytest.skip(f"no OpenSearch here: {error}")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def on_server(opensearch: OpenSearch) -> OnServer:
    """Names on a real server."""
    return OnServer(server=opensearch, name=f"products-{next(NUMBERS)}")


@pytest.fixture(params=["directory", pytest.param("opensearch", marks=pytest.mark.java)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """One of the two."""
    if request.param == "directory":
        return InDirectory(path=tmp_path / "with space")
    found: OnServer = request.getfixturevalue("on_server")
    return found


@pytest.fixture
def index(backend: Backend) -> Iterator[Index]:
    """The index, as an application opens it; it need not be there yet."""
    with open_index(backend.address, backend.name) as opened:
        yield opened


@pytest.fixture
def table(backend: Backend) -> Any:
    """The index, as a pipeline is told of it."""
    return hr.search_index(backend.address, backend.name, key="k", writers=2)


@pytest.fixture
def writer(tmp_path: Path) -> Callable[..., BatchWriter]:
    """A writer as each start of a query with a checkpoint makes one."""

    def make_writer(
        target: Table, *, query_id: str = "query-1", pipeline: str = "orders", has_checkpoint: bool = True
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
