"""The web application, called without a socket."""

from __future__ import annotations

import asyncio
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

from headrace.config import Address, ConsoleConfig
from headrace.console.app import create_app
from headrace.console.board import Board
from headrace.console.observations import BrokerLost, RecordsRead, TopicsMeasured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from starlette.applications import Starlette
    from starlette.types import Message, Scope
    from tests.unit.console.conftest import Client, Recorder, SilentFeed

    from headrace.console.api import Back
    from headrace.testing.clock import ManualClock

    Run = Callable[[Starlette, Address], AbstractContextManager[Client]]

ADDRESS = Address("127.0.0.1", 8500)


def no_hang_up(scope: Scope) -> None:
    raise AssertionError("no page is cut off in this test")


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return Board(ConsoleConfig(viewer_count_max=2), clock, session="s1")


@pytest.fixture
def app(board: Board, silent_feed: SilentFeed, back: Back) -> Starlette:
    return create_app(board, silent_feed, ADDRESS, no_hang_up, back)


@pytest.fixture
def client(app: Starlette, run: Run) -> Iterator[Client]:
    with run(app, ADDRESS) as client:
        yield client


class Stream:
    """One GET of /events, driven as a server drives it."""

    def __init__(self, app: Starlette, *headers: tuple[bytes, bytes], query: bytes = b"") -> None:
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": "/events",
            "raw_path": b"/events",
            "query_string": query,
            "headers": [(b"host", str(ADDRESS).encode()), *headers],
            "app": app,
        }
        self._app = app
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.create_task(self._app(self._scope, self._receive, self._sent.put))

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def next(self) -> Message:
        """The next message that the application sends."""
        return await asyncio.wait_for(self._sent.get(), 5)

    async def alert_ids(self, count: int) -> list[str]:
        """Read on until so many alerts have come."""
        text, found = "", list[str]()
        while len(found) < count:
            text += (await self.next()).get("body", b"").decode()
            found = [
                json.loads(data)["alert_id"] for data in re.findall(r"event: alert\r\ndata: (.*)\r\n", text)
            ]
        return found

    async def close(self) -> None:
        """Go away, as a browser does."""
        self._gone.set()
        await asyncio.wait_for(self._task, 5)

    async def ended(self) -> None:
        """Wait until the application has ended the stream."""
        await asyncio.wait_for(self._task, 5)


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/orders", "/pipelines", "/stores", "/groups"])
def test_the_pages_and_their_files_come_from_packages(client: Client, path: str) -> None:
    page = client.get(path)
    assert page.headers["content-type"].startswith("text/html")
    assert "{{" not in page.text
    for linked in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
        assert client.get(linked).status_code == 200, linked
    wanted, seen = set(re.findall(r"/static/(\w+\.js)", page.text)), set[str]()
    while wanted - seen:
        script = (wanted - seen).pop()
        seen.add(script)
        answer = client.get(f"/static/{script}")
        assert answer.headers["content-type"].startswith("text/javascript")
        wanted |= set(re.findall(r'from "\./([^"]+)"', answer.text))


def test_the_chart_library_comes_from_its_own_package(client: Client) -> None:
    answer = client.get("/vendor/plotly/plotly.min.js")
    assert answer.status_code == 200
    assert "plotly.js v" in answer.text[:200]


def test_the_pages_name_no_other_host_and_have_no_inline_code() -> None:
    for directory in ("static", "pages"):
        for file in files("headrace.console").joinpath(directory).iterdir():
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), file.name
            assert "innerHTML" not in text
            assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text), file.name


def test_every_control_of_every_page_has_a_name_and_every_page_its_landmarks(client: Client) -> None:
    for path in ("/", "/topics", "/topics/orders", "/pipelines", "/stores", "/groups"):
        page = client.get(path).text
        assert all(page.count(f"<{landmark}") == 1 for landmark in ("main", "nav", "h1", "header"))
        assert page.count('aria-current="page"') == 1
        assert all("aria-label" in tag for tag in re.findall(r'<div[^>]*role="img"[^>]*>', page))
        for tag in re.findall(r"<input[^>]*>", page):
            before = page[: page.index(tag)]
            assert before.rindex("<label") > before.rfind("</label>"), tag


def test_alerts_and_numbers_are_to_be_had_as_json(client: Client, board: Board, recorder: Recorder) -> None:
    board.apply(RecordsRead(records=(recorder.alert("a", rule="velocity", count=6), recorder.raw(b"?"))))
    broken, alert = client.get("/api/alerts").json()["alerts"]
    assert (broken["kind"], alert["kind"]) == ("undecodable", "alert")
    assert alert["words"] == "6 transactions in 1 minute"
    assert client.get("/api/stats").json()["alerts"]["undecodable_count"] == 1


def test_health_follows_the_broker(client: Client, board: Board, clock: ManualClock) -> None:
    board.apply(TopicsMeasured(input_end=1, alerts_end=0))
    assert client.get("/health").json() == {"status": "live", "words": "live"}
    board.apply(BrokerLost(reason=""))
    answer = client.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "unreachable")


def test_what_is_not_there_is_said_in_a_sentence(client: Client) -> None:
    for path in ("/nowhere", "/static/nowhere.js", "/static/%2e%2e/app.py", "/events/"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "There is no" in answer.text


def test_head_is_answered_and_opens_no_stream(client: Client, board: Board) -> None:
    answer = client.request("HEAD", "/events")
    assert (answer.status_code, answer.text, len(board.viewers)) == (200, "", 0)


def test_the_feed_runs_exactly_as_long_as_the_application(
    app: Starlette, silent_feed: SilentFeed, run: Run
) -> None:
    with run(app, ADDRESS):
        assert silent_feed.post is not None
        assert silent_feed.stop_count == 0
    assert silent_feed.stop_count == 1


def test_what_the_feed_posts_from_its_thread_is_applied_before_it_goes_on(
    client: Client, silent_feed: SilentFeed, recorder: Recorder
) -> None:
    assert silent_feed.post is not None
    silent_feed.post(RecordsRead(records=(recorder.alert("a"),)))
    assert client.get("/api/stats").json()["alerts"]["alert_count"] == 1


def test_a_stream_carries_what_is_retained_and_then_what_comes(
    app: Starlette, board: Board, recorder: Recorder
) -> None:
    async def scenario() -> None:
        board.apply(RecordsRead(records=(recorder.alert("a"),)))
        stream = Stream(app)
        assert dict((await stream.next())["headers"])[b"content-type"].startswith(b"text/event-stream")
        assert await stream.alert_ids(1) == ["a"]
        board.apply(RecordsRead(records=(recorder.alert("b"),)))
        assert await stream.alert_ids(1) == ["b"]
        await stream.close()
        assert len(board.viewers) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "resume", [{"header": b"s1-1"}, {"query": b"last_event_id=s1-1"}], ids=["header", "query"]
)
def test_a_stream_resumes_after_the_last_event_that_was_seen(
    app: Starlette, board: Board, recorder: Recorder, resume: dict[str, Any]
) -> None:
    async def scenario() -> None:
        board.apply(RecordsRead(records=tuple(recorder.alert(name) for name in "abc")))
        headers = [(b"last-event-id", resume["header"])] if "header" in resume else []
        stream = Stream(app, *headers, query=resume.get("query", b""))
        assert await stream.alert_ids(2) == ["b", "c"]
        await stream.close()

    asyncio.run(scenario())


def test_one_page_too_many_is_told_when_to_come_back(app: Starlette, board: Board) -> None:
    async def scenario() -> None:
        open_pages = [Stream(app), Stream(app)]
        for page in open_pages:
            await page.next()
        refused = Stream(app)
        start, body = await refused.next(), await refused.next()
        assert start["status"] == 503
        assert dict(start["headers"])[b"retry-after"] == b"5"
        assert b"2 pages are open already" in body["body"]
        await open_pages[0].close()
        welcome = Stream(app)
        assert (await welcome.next())["status"] == 200
        await open_pages[1].close()
        await welcome.close()
        assert len(board.viewers) == 0

    asyncio.run(scenario())


def test_open_streams_end_when_the_console_closes(app: Starlette, board: Board) -> None:
    async def scenario() -> None:
        stream = Stream(app)
        await stream.next()
        board.viewers.close()
        await stream.ended()

    asyncio.run(scenario())


def test_a_page_that_falls_behind_is_hung_up_on(
    clock: ManualClock, silent_feed: SilentFeed, recorder: Recorder, back: Back
) -> None:
    board = Board(ConsoleConfig(viewer_backlog_max=3), clock, session="s1")
    hung_up: list[Scope] = []
    app = create_app(board, silent_feed, ADDRESS, hung_up.append, back)

    async def scenario() -> None:
        stream = Stream(app)
        await stream.next()
        board.apply(RecordsRead(records=tuple(recorder.alert(str(number)) for number in range(4))))
        assert (board.viewers.cut_off_count, len(board.viewers)) == (1, 0)
        assert [scope["path"] for scope in hung_up] == ["/events"]
        await stream.close()

    asyncio.run(scenario())


def test_a_failure_inside_is_a_sentence_and_not_a_traceback(
    clock: ManualClock, silent_feed: SilentFeed, monkeypatch: pytest.MonkeyPatch, run: Run, back: Back
) -> None:
    board = Board(ConsoleConfig(), clock, session="s1")

    def boom() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(board, "alerts", boom)
    app = create_app(board, silent_feed, ADDRESS, no_hang_up, back)
    with run(app, ADDRESS) as client:
        answer = client.get("/api/alerts")
    assert answer.status_code == 500
    assert "The console failed (RuntimeError)" in answer.text
    assert "secret detail" not in answer.text
    assert "content-security-policy" in answer.headers
