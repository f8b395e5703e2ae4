"""Messages of a queue are posted to a URL: acknowledged, tried again, given up; never lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.config import PushConfig
from headrace.queue_clients.push.pusher import Pusher
from headrace.queue_clients.push.request import signature
from headrace.testing.failpoints import kill_at
from headrace.testing.waiting import eventually

Answer = tuple[int, dict[str, str], bytes]
OK: Answer = (200, {}, b"")


class Receiver:
    """A web server that answers as it is told and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: Callable[[str, bytes, int], Answer] = lambda _path, _body, _attempt: OK
        self.under_way = self.most_under_way = 0
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.handle(self)

            def do_GET(self) -> None:
                receiver.handle(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?token=secret"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in request.headers.items()}
        with self._lock:
            self.requests.append((f"{request.command} {request.path}", headers, body))
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            attempt = int(headers.get("x-headrace-attempt", 1))
            status, more, said = self.answer(request.path, body, attempt)
        finally:
            with self._lock:
                self.under_way -= 1
        try:
            request.send_response(status)
            for name, value in {**more, "content-length": str(len(said))}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(said)
        except OSError:
            return  # the client did not wait

    def bodies(self) -> list[bytes]:
        """What was posted."""
        return [body for _, _, body in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A web server of the test's own."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


@contextmanager
def pushing(queues: Any, queue: str, receiver: Receiver, **settings: Any) -> Iterator[Pusher]:
    """Push a queue while the context is open, on a thread of its own."""
    given = {"pause_s_first": 0.01, "pause_s_max": 0.05, "attempt_count_max": 3, **settings}
    config = PushConfig(queue=queue, to=given.pop("to", receiver.url), url=queues.url, **given)
    ready, pushers, errors = threading.Event(), list[Pusher](), list[BaseException]()

    async def run() -> None:
        pusher = Pusher(config, SystemClock(), on_ready=ready.set)
        pushers.append(pusher)
        await pusher.keep_running()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001  # it is raised where the test can see it
            errors.append(error)
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(30)
    try:
        if not errors:
            yield pushers[0]
    finally:
        if pushers:
            pushers[0].stop()
        thread.join(60)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_a_message_that_is_accepted_is_gone(queues: Any, name: str, receiver: Receiver) -> None:
    queues.declare(name)
    queues.publish(name, *(str(number).encode() for number in range(50)), tenant="acme")
    with pushing(queues, name, receiver, secret="s3cret", headers={"authorization": "Bearer x"}):
        eventually(lambda: len(receiver.requests) == 50, "all are posted")
        eventually(lambda: queues.count(name) == 0, "the queue is empty")
    assert queues.take(name) == []
    assert set(receiver.bodies()) == {str(number).encode() for number in range(50)}
    what, headers, body = receiver.requests[0]
    assert what == "POST /hook?token=secret"
    assert headers["authorization"] == "Bearer x"
    assert headers["x-headrace-headers"] == '{"tenant": "acme"}'
    signed = signature("s3cret", headers["webhook-id"], int(headers["webhook-timestamp"]), body)
    assert headers["webhook-signature"] == signed
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 50


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_what_fails_for_now_is_tried_again_with_the_same_id(
    queues: Any, name: str, receiver: Receiver
) -> None:
    queues.declare(name)
    receiver.answer = lambda _path, _body, attempt: OK if attempt == 3 else (503, {"retry-after": "0"}, b"")
    queues.publish(name, b"x")
    with pushing(queues, name, receiver) as pusher:
        eventually(lambda: len(receiver.requests) == 3, "the third attempt was made")
        eventually(lambda: pusher.metrics.render("")[1].count(b"accepted_total{") == 1, "it is counted")
    assert queues.take(name) == []
    assert queues.take(f"{name}.dead") == []
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 1


def test_what_is_refused_is_a_dead_letter_at_once_and_can_be_sent_back(
    queues: Any, name: str, receiver: Receiver
) -> None:
    queues.declare(name)
    receiver.answer = lambda _path, body, _attempt: (400, {}, b"no such order") if body == b"bad" else OK
    queues.publish(name, b"bad", b"good")
    with pushing(queues, name, receiver):
        eventually(lambda: queues.count(f"{name}.dead") == 1, "the bad one is a dead letter")
    assert receiver.bodies().count(b"bad") == 1
    [dead] = queues.take(f"{name}.dead")
    assert dead.body == b"bad"
    assert dead.headers["x-headrace-cause"] == "HTTP 400: no such order"
    assert dead.headers["x-death"][0]["reason"] == "push-failed"
    assert dead.headers["x-death"][0]["queue"] == name
    assert queues.take(name) == []


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_what_fails_too_often_is_given_up_with_the_last_cause(
    queues: Any, name: str, receiver: Receiver
) -> None:
    queues.declare(name)
    receiver.answer = lambda *_: (500, {}, b"oops")
    queues.publish(name, b"x")
    with pushing(queues, name, receiver):
        eventually(lambda: queues.count(f"{name}.dead") == 1, "it is given up")
    [dead] = queues.take(f"{name}.dead")
    assert dead.headers["x-headrace-cause"] == "3 attempts, at last HTTP 500: oops"
    assert len(receiver.requests) == 3


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_a_server_that_is_not_there_or_never_answers_is_tried_again(
    queues: Any, name: str, receiver: Receiver
) -> None:
    queues.declare(name)
    hanging = threading.Event()

    def hang(*_: object) -> Answer:
        hanging.wait(60)
        return OK

    receiver.answer = hang
    queues.publish(name, b"x")
    with pushing(queues, name, receiver, timeout_s=0.2, attempt_count_max=2):
        eventually(lambda: queues.count(f"{name}.dead") == 1, "it is given up")
    hanging.set()
    [dead] = queues.take(f"{name}.dead")
    assert dead.headers["x-headrace-cause"] == "2 attempts, at last no answer within 0.2 s"
    queues.publish(name, b"y")
    with pushing(queues, name, receiver, to="http://127.0.0.1:1/", attempt_count_max=2):
        eventually(lambda: queues.count(f"{name}.dead") == 1, "it is given up")
    assert "ConnectError" in queues.take(f"{name}.dead")[0].headers["x-headrace-cause"]


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_no_redirect_is_followed_unless_it_is_allowed_and_never_to_another_server(
    queues: Any, name: str, receiver: Receiver
) -> None:
    queues.declare(name)
    port = receiver.server.server_port
    targets = {
        b"own": "/other",
        b"foreign": f"http://localhost:{port}/other",
        b"file": "file:///etc/passwd",
        b"loop": "/hook",
    }

    def answer(path: str, body: bytes, _attempt: int) -> Answer:
        return OK if path == "/other" else (308, {"location": targets[body]}, b"")

    receiver.answer = answer
    queues.publish(name, b"own")
    with pushing(queues, name, receiver):
        eventually(lambda: queues.count(f"{name}.dead") == 1, "it is given up")
    assert queues.take(f"{name}.dead")[0].headers["x-headrace-cause"] == "HTTP 308"
    queues.publish(name, *targets)
    with pushing(queues, name, receiver, follow_redirects=True):
        eventually(lambda: queues.count(f"{name}.dead") == 3, "the others are given up")
        eventually(lambda: queues.count(name) == 0, "all are taken")
    assert {each.body for each in queues.take(f"{name}.dead")} == {b"foreign", b"file", b"loop"}
    assert [body for what, _, body in receiver.requests if what == "POST /other"] == [b"own"]


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_no_more_requests_than_allowed_are_under_way(queues: Any, name: str, receiver: Receiver) -> None:
    queues.declare(name)
    gate = threading.Barrier(3)

    def meet_others(*_: object) -> Answer:
        gate.wait(60)
        return OK

    receiver.answer = meet_others
    queues.publish(name, *(b"x" for _ in range(12)))
    with pushing(queues, name, receiver, concurrency=3):
        eventually(lambda: len(receiver.requests) == 12, "all are posted")
        eventually(lambda: queues.count(name) == 0, "the queue is empty")
    assert receiver.most_under_way == 3


def test_what_waits_to_be_tried_again_goes_back_when_it_is_stopped(
    queues: Any, name: str, receiver: Receiver
) -> None:
    queues.declare(name)
    receiver.answer = lambda *_: (503, {"retry-after": "600"}, b"")
    queues.publish(name, b"x")
    with pushing(queues, name, receiver, pause_s_max=900):
        eventually(lambda: receiver.requests, "it was tried")
    [back] = queues.take(name)
    assert (back.body, back.redelivered) == (b"x", True)


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
@pytest.mark.parametrize(("place", "status"), [("push.accepted", 200), ("push.dead_lettered", 400)])
def test_killed_before_the_queue_knows_a_message_comes_again_and_is_not_lost(
    queues: Any, name: str, receiver: Receiver, command: Any, place: str, status: int
) -> None:
    queues.declare(name)
    receiver.answer = lambda *_: (status, {}, b"")
    queues.publish(name, b"1", b"2")
    arguments = ("queues", "push", name, "--to", receiver.url, "--url", queues.url, "--concurrency", "1")
    with command(*arguments, environment=kill_at(place)) as killed:
        killed.await_killed()
    assert eventually(lambda: queues.count(name) == 2, "both are in the queue")
    with command(*arguments) as running:
        running.await_ready()
        eventually(lambda: queues.count(name) == 0, "both are taken")
        said = running.end()
    assert "secret" not in said
    assert queues.take(name) == []
    assert receiver.bodies() == [b"1", b"1", b"2"]
    assert len({headers["webhook-id"] for _, headers, _ in receiver.requests}) == 2
    dead = {each.message_id for each in queues.take(f"{name}.dead")}
    assert len(dead) == (0 if status == 200 else 2)
