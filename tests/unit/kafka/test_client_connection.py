"""A connection's order and limits, with a transport that only notes what it is told."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.config import BrokerConfig
from headrace.errors import StorageError
from headrace.kafka.answer import Pending
from headrace.kafka.api import APIS
from headrace.kafka.budget import PACE_WINDOW_S, Budgets
from headrace.kafka.client_connection import FRAME_WAIT_S_MAX, LOCAL_SEND_BYTES, ClientConnection
from headrace.kafka.connection import REQUESTS_WAITING_MAX
from headrace.kafka.dispatch import Started
from headrace.kafka.messages.metadata import MetadataResponse
from headrace.kafka.messages.produce import ProduceResponse
from headrace.kafka.metrics.counters import Counters
from headrace.kafka.open_connections import OpenConnections
from headrace.kafka.unsent_answers import UnsentAnswers

PRODUCE, FETCH, METADATA = 0, 1, 3
UNSENT_BYTES_MAX = 1_000
EMPTY_METADATA = MetadataResponse(brokers=(), topics=())
EMPTY_PRODUCE = ProduceResponse(responses=())


class FakeTransport:
    """Notes what is written and whether reading goes on."""

    def __init__(self) -> None:
        self.written = b""
        self.is_reading = True
        self.is_aborted = False
        self.is_closed = False
        self.unsent_bytes = 0
        self.names = {"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", 9_092)}

    def get_extra_info(self, name: str) -> Any:
        return self.names.get(name)

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


class Bench:
    """Connections whose handlers answer when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.started: list[tuple[int, Pending[Any]]] = []
        self.lost: list[str] = []
        self.budget = Budgets(10_000, frame_bytes_max=6_100)
        self.services: Any = SimpleNamespace(
            config=BrokerConfig(),
            store=SimpleNamespace(failed=None),
            commit=SimpleNamespace(is_synchronous=True),
            logins=None,
            counters=Counters(),
            shares=SimpleNamespace(connection_lost=self.lost.append),
            unsent_answers=UnsentAnswers(UNSENT_BYTES_MAX),
        )
        for key in (PRODUCE, FETCH, METADATA):
            monkeypatch.setitem(APIS, key, APIS[key].handled_by(self._handler(key)))

    def _handler(self, key: int) -> Any:
        def handle(*_arguments: object) -> Pending[Any]:
            pending: Pending[Any] = Pending()
            self.started.append((key, pending))
            return pending

        return handle

    def connect(self, *, may_open: bool = True) -> tuple[ClientConnection, Any]:
        connections = OpenConnections(self.services.config, self.loop.time)
        connections.is_closed = not may_open
        connection = ClientConnection(self.services, self.budget, connections, self.loop)
        transport: Any = FakeTransport()
        connection.connection_made(transport)
        return connection, transport

    @property
    def keys(self) -> list[int]:
        return [key for key, _ in self.started]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    loop = asyncio.new_event_loop()
    yield Bench(monkeypatch, loop)
    loop.close()


def frame(key: int, correlation_id: int, padding: int = 0) -> bytes:
    bodies = {
        METADATA: (1, struct.pack(">i", -1)),
        PRODUCE: (3, struct.pack(">hhii", -1, -1, 0, 0)),
        FETCH: (4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, 0)),
    }
    version, body = bodies[key]
    data = struct.pack(">hhih", key, version, correlation_id, -1) + body + bytes(padding)
    return struct.pack(">i", len(data)) + data


def correlation_ids(data: bytes) -> list[int]:
    found = []
    while data:
        size, correlation_id = struct.unpack_from(">ii", data)
        found.append(correlation_id)
        data = data[4 + size :]
    return found


def test_produces_start_together_and_are_answered_in_order(bench: Bench) -> None:
    connection, transport = bench.connect()
    connection.data_received(b"".join(frame(PRODUCE, number) for number in range(5)))
    assert bench.keys == [PRODUCE] * 5
    for _, pending in reversed(bench.started):
        assert transport.written == b""
        pending.resolve(EMPTY_PRODUCE)
    assert correlation_ids(transport.written) == [0, 1, 2, 3, 4]


def test_another_request_starts_only_when_all_before_it_are_answered(bench: Bench) -> None:
    connection, _ = bench.connect()
    connection.data_received(frame(PRODUCE, 0) + frame(METADATA, 1) + frame(PRODUCE, 2))
    assert bench.keys == [PRODUCE]
    bench.started[0][1].resolve(EMPTY_PRODUCE)
    assert bench.keys == [PRODUCE, METADATA]
    bench.started[1][1].resolve(EMPTY_METADATA)
    assert bench.keys == [PRODUCE, METADATA, PRODUCE]


def test_reading_stops_while_too_many_requests_wait_and_goes_on_after(bench: Bench) -> None:
    connection, transport = bench.connect()
    connection.data_received(b"".join(frame(METADATA, number) for number in range(REQUESTS_WAITING_MAX + 9)))
    assert not transport.is_reading
    while not transport.is_reading:
        bench.started[-1][1].resolve(EMPTY_METADATA)
    assert len(bench.started) < REQUESTS_WAITING_MAX
    while len(correlation_ids(transport.written)) < REQUESTS_WAITING_MAX + 9:
        bench.started[-1][1].resolve(EMPTY_METADATA)
    assert correlation_ids(transport.written) == list(range(REQUESTS_WAITING_MAX + 9))


def test_nothing_more_starts_for_a_client_that_does_not_read_its_answers(bench: Bench) -> None:
    connection, _ = bench.connect()
    connection.pause_writing()
    connection.data_received(frame(METADATA, 0))
    assert bench.keys == []
    connection.resume_writing()
    assert bench.keys == [METADATA]


def test_a_frame_for_which_there_is_no_room_waits_until_another_connection_gives_room_back(
    bench: Bench,
) -> None:
    (first, _), (second, transport) = bench.connect(), bench.connect()
    first.data_received(frame(METADATA, 0, padding=6_000))
    second.data_received(frame(METADATA, 1, padding=6_000))
    assert bench.keys == [METADATA]
    assert not transport.is_reading
    bench.started[0][1].resolve(EMPTY_METADATA)
    assert bench.keys == [METADATA, METADATA]
    assert transport.is_reading
    bench.started[1][1].resolve(EMPTY_METADATA)
    assert bench.budget.used_bytes == 0


def test_a_lost_connection_gives_back_its_room_and_its_waits(bench: Bench) -> None:
    connection, _ = bench.connect()
    connection.data_received(frame(METADATA, 0, padding=3_000) + frame(METADATA, 1, padding=3_000))
    connection.data_received(frame(PRODUCE, 2, padding=2_000)[:1_500])
    abandoned: list[bool] = []
    bench.started[0][1].on_abandoned = lambda: abandoned.append(True)
    assert 7_000 < bench.budget.used_bytes < 8_000
    connection.connection_lost(None)
    assert bench.budget.used_bytes == 0
    assert abandoned == [True]
    bench.started[0][1].resolve(EMPTY_METADATA)
    assert bench.budget.used_bytes == 0


@pytest.mark.parametrize("end", ["lost", "aborted"])
def test_a_connection_that_ends_lets_go_of_an_answer_that_waits_in_its_files(bench: Bench, end: str) -> None:
    connection, _ = bench.connect()
    dropped: list[bool] = []
    waiting: Any = SimpleNamespace(drop=lambda: dropped.append(True))
    connection._unread = waiting  # It takes a real socket to have one.
    if end == "lost":
        connection.connection_lost(None)
    else:
        connection.abort()
    assert dropped == [True]


def test_what_has_been_read_of_an_answer_that_waits_in_its_files_counts_until_the_connection_ends(
    bench: Bench,
) -> None:
    connection, _ = bench.connect()
    unsent = bench.services.unsent_answers
    waiting: Any = SimpleNamespace(
        read_bytes=700_000, file_count=2, newly_sent_bytes=lambda: 0, taken_s=0.0, drop=lambda: None
    )
    connection._unread = waiting
    connection.pause_writing()
    assert (unsent.size_bytes, unsent.holder_count, unsent.file_holder_count) == (700_000, 1, 1)
    waiting.read_bytes = 3
    connection.close_if_late(0.0)
    assert (unsent.size_bytes, unsent.holder_count) == (0, 0), "so little would be sent at once"
    assert unsent.file_holder_count == 1
    connection.connection_lost(None)
    assert unsent.file_holder_count == 0


@pytest.mark.parametrize("waits", [True, False])
def test_a_client_that_sends_no_more_is_kept_only_while_an_answer_waits_for_it(
    bench: Bench, *, waits: bool
) -> None:
    connection, _ = bench.connect()
    if waits:
        connection._unread = cast("Any", SimpleNamespace())
    assert connection.eof_received() is waits


def test_a_client_that_sends_no_more_and_does_not_read_has_to_make_way_too(bench: Bench) -> None:
    connection, transport = bench.connect()
    transport.unsent_bytes = UNSENT_BYTES_MAX
    connection.pause_writing()
    connection.eof_received()
    assert not bench.services.unsent_answers.has_room(lambda: None)
    connection.close_if_late(0.0)
    assert not transport.is_aborted
    connection.close_if_late(PACE_WINDOW_S)
    assert transport.is_aborted


def test_what_is_handed_back_and_would_not_fit_into_memory_closes_the_connection(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    connection, transport = bench.connect()
    connection._end_unread([bytes(UNSENT_BYTES_MAX + 1)])
    assert transport.is_aborted
    assert "can't wait in memory" in caplog.text


def test_an_answer_that_cannot_be_written_ends_only_its_own_connection(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (first, broken), (second, whole) = bench.connect(), bench.connect()
    first.data_received(frame(METADATA, 0))
    second.data_received(frame(METADATA, 1))
    bench.started[0][1].resolve("not a response")
    bench.started[1][1].resolve(EMPTY_METADATA)
    assert broken.is_aborted
    assert correlation_ids(whole.written) == [1]
    assert "in an unexpected way" in caplog.text


def test_a_connection_that_may_not_open_is_closed_at_once(bench: Bench) -> None:
    _, transport = bench.connect(may_open=False)
    assert transport.is_aborted


@pytest.mark.parametrize(("peer", "is_local"), [("127.0.0.1", True), ("192.0.2.7", False)])
def test_little_is_kept_in_the_socket_of_a_client_on_this_machine_alone(
    bench: Bench, peer: str, is_local: bool
) -> None:
    connections = OpenConnections(bench.services.config, bench.loop.time)
    connection = ClientConnection(bench.services, bench.budget, connections, bench.loop)
    transport: Any = FakeTransport()
    with socket.socket() as ours:
        untouched_bytes = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        # Linux keeps as much again for what it needs itself, and no more than it is set up to allow.
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_SEND_BYTES)
            little_bytes = other.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        transport.names |= {"socket": ours, "peername": (peer, 40_000)}
        connection.connection_made(transport)
        kept_bytes = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    assert kept_bytes == (little_bytes if is_local else untouched_bytes)
    assert little_bytes != untouched_bytes


def test_a_client_that_has_hung_up_before_it_was_greeted_is_let_go(bench: Bench) -> None:
    connections = OpenConnections(bench.services.config, bench.loop.time)
    connection = ClientConnection(bench.services, bench.budget, connections, bench.loop)
    transport: Any = FakeTransport()
    del transport.names["peername"]
    connection.connection_made(transport)
    assert transport.is_aborted
    assert len(connections) == 0


def test_bytes_that_are_wrong_behind_a_full_queue_close_the_connection_when_their_turn_comes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    connection, transport = bench.connect()
    requests = b"".join(frame(METADATA, number) for number in range(REQUESTS_WAITING_MAX + 1))
    connection.data_received(requests + b"GET / HTTP/1.1\r\n")
    assert not transport.is_aborted
    bench.started[-1][1].resolve(EMPTY_METADATA)
    assert transport.is_aborted
    assert "an HTTP request" in caplog.text


def test_a_frame_that_is_late_because_it_was_not_read_is_not_held_against_the_client(bench: Bench) -> None:
    connection, transport = bench.connect()
    requests = b"".join(frame(METADATA, number) for number in range(REQUESTS_WAITING_MAX + 1))
    connection.data_received(frame(METADATA, 999, padding=500)[:100])
    connection.close_if_late(bench.loop.time() + FRAME_WAIT_S_MAX - 1)
    assert not transport.is_aborted
    connection.data_received(frame(METADATA, 999, padding=500)[100:] + requests)
    assert not transport.is_reading
    connection.close_if_late(bench.loop.time() + 10 * FRAME_WAIT_S_MAX)
    assert not transport.is_aborted


def test_a_frame_that_never_ends_closes_its_connection(bench: Bench) -> None:
    connection, transport = bench.connect()
    connection.data_received(frame(METADATA, 0, padding=500)[:100])
    connection.close_if_late(bench.loop.time() + FRAME_WAIT_S_MAX + 1)
    assert transport.is_aborted


def test_only_what_has_come_of_a_frame_takes_room(bench: Bench) -> None:
    for _ in range(20):
        connection, _ = bench.connect()
        connection.data_received(frame(PRODUCE, 0, padding=6_000)[:30])
    assert bench.budget.used_bytes < 20 * 30
    other, transport = bench.connect()
    other.data_received(frame(METADATA, 1, padding=2_000))
    assert bench.keys == [METADATA]
    assert transport.is_reading


def test_unfinished_frames_that_have_filled_the_room_come_to_their_end_one_after_the_other(
    bench: Bench,
) -> None:
    data = [frame(METADATA, number, padding=6_000) for number in range(8)]
    clients = [bench.connect() for _ in data]
    sent = [0] * len(data)
    while len(bench.started) < len(data):
        before = sum(sent)
        for number, (connection, transport) in enumerate(clients):
            if transport.is_reading and sent[number] < len(data[number]):
                connection.data_received(data[number][sent[number] : sent[number] + 500])
                sent[number] += 500
        assert bench.budget.used_bytes <= 10_000
        is_stuck = sum(sent) == before
        for _, pending in bench.started:
            is_stuck = is_stuck and pending.is_resolved
            pending.resolve(EMPTY_METADATA)
        assert not is_stuck
    for _, pending in bench.started:
        pending.resolve(EMPTY_METADATA)
    assert bench.budget.used_bytes == 0


def test_a_frame_that_stands_still_makes_way_when_others_wait_for_room(bench: Bench) -> None:
    (slow, stalled), (other, _) = bench.connect(), bench.connect()
    slow.data_received(frame(METADATA, 0, padding=6_000)[:5_900])
    other.data_received(frame(METADATA, 1, padding=6_000))
    assert bench.keys == []
    now_s = bench.loop.time()
    slow.close_if_late(now_s)
    slow.close_if_late(now_s + PACE_WINDOW_S + 1)
    assert stalled.is_aborted
    slow.connection_lost(None)
    assert bench.keys == [METADATA]


def test_a_frame_that_stands_still_is_waited_for_when_nobody_else_needs_the_room(bench: Bench) -> None:
    slow, transport = bench.connect()
    slow.data_received(frame(METADATA, 0, padding=6_000)[:5_900])
    for second in range(int(FRAME_WAIT_S_MAX) - 1):
        slow.close_if_late(bench.loop.time() + second)
    assert not transport.is_aborted


def test_a_connection_on_which_nothing_happens_is_closed_in_the_end(bench: Bench) -> None:
    connection, transport = bench.connect()
    idle_s_max = bench.services.config.connection_idle_ms_max / 1000
    connection.close_if_late(bench.loop.time() + idle_s_max - 1)
    assert not transport.is_closing()
    connection.close_if_late(bench.loop.time() + idle_s_max + 1)
    assert transport.is_closing()


def test_a_connection_that_waits_for_an_answer_is_not_idle(bench: Bench) -> None:
    connection, transport = bench.connect()
    connection.data_received(frame(METADATA, 0))
    idle_s_max = bench.services.config.connection_idle_ms_max / 1000
    connection.close_if_late(bench.loop.time() + 10 * idle_s_max)
    assert not transport.is_closing()


def _leave_unread(connection: ClientConnection, transport: Any, size_bytes: int) -> None:
    """Let a client's socket take no more, with so many bytes of answers before it."""
    transport.unsent_bytes = size_bytes
    connection.pause_writing()


def test_a_fetch_waits_while_others_leave_too_much_unread_and_starts_when_they_have_read_it(
    bench: Bench,
) -> None:
    (slow, unread), (other, _) = bench.connect(), bench.connect()
    _leave_unread(slow, unread, UNSENT_BYTES_MAX)
    other.data_received(frame(METADATA, 0))
    bench.started[0][1].resolve(EMPTY_METADATA)
    other.data_received(frame(FETCH, 1))
    assert bench.keys == [METADATA], "only fetches wait"
    slow.resume_writing()
    assert bench.keys == [METADATA, FETCH]
    assert bench.services.unsent_answers.size_bytes == 0


def test_what_a_lost_connection_has_left_unread_is_room_for_others(bench: Bench) -> None:
    (slow, unread), (other, _), (gone, _) = bench.connect(), bench.connect(), bench.connect()
    _leave_unread(slow, unread, UNSENT_BYTES_MAX)
    gone.data_received(frame(FETCH, 0))
    gone.connection_lost(None)
    assert not bench.services.unsent_answers.is_short
    other.data_received(frame(FETCH, 1))
    slow.connection_lost(None)
    assert bench.keys == [FETCH]


def test_a_client_that_does_not_take_its_answers_makes_way_when_others_wait_for_room(bench: Bench) -> None:
    (slow, unread), (other, _) = bench.connect(), bench.connect()
    _leave_unread(slow, unread, UNSENT_BYTES_MAX)
    now_s = bench.loop.time()
    slow.close_if_late(now_s + PACE_WINDOW_S + 1)
    slow.close_if_late(now_s + 2 * PACE_WINDOW_S + 2)
    assert not unread.is_aborted, "nobody waits"
    other.data_received(frame(FETCH, 0))
    slow.close_if_late(now_s + 3 * PACE_WINDOW_S)
    slow.close_if_late(now_s + 4 * PACE_WINDOW_S + 1)
    assert unread.is_aborted
    slow.connection_lost(None)
    assert bench.keys == [FETCH]


def test_a_client_that_never_reads_is_let_go_in_the_end(bench: Bench) -> None:
    connection, transport = bench.connect()
    _leave_unread(connection, transport, 900)
    connection.data_received(frame(METADATA, 0))
    idle_s_max = bench.services.config.connection_idle_ms_max / 1000
    now_s = bench.loop.time()
    transport.unsent_bytes = 800
    connection.close_if_late(now_s + idle_s_max - 1)
    connection.close_if_late(now_s + idle_s_max + 2)
    assert not transport.is_aborted, "it had read something"
    connection.close_if_late(now_s + 2 * idle_s_max)
    assert transport.is_aborted


def test_a_connection_that_was_closed_ends_although_its_client_never_reads(bench: Bench) -> None:
    connection, transport = bench.connect()
    _leave_unread(connection, transport, 900)
    connection.close()
    idle_s_max = bench.services.config.connection_idle_ms_max / 1000
    connection.close_if_late(bench.loop.time() + idle_s_max - 1)
    assert not transport.is_aborted
    connection.close_if_late(bench.loop.time() + idle_s_max + 1)
    assert transport.is_aborted


class StoredAnswer:
    """An answer whose second part is read when it is sent."""

    def __init__(self, pieces: list[bytes | Exception]) -> None:
        self._pieces = pieces
        self.read_when: list[bytes] = []
        self.transport: Any = None

    def __len__(self) -> int:
        return 1 << 20

    def pieces(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.read_when.append(self.transport.written)
            if isinstance(piece, Exception):
                raise piece
            yield piece


def _send_stored(bench: Bench, monkeypatch: pytest.MonkeyPatch, stored: StoredAnswer) -> Any:
    connection, transport = bench.connect()
    stored.transport = transport
    connection.data_received(frame(METADATA, 1))
    monkeypatch.setattr(Started, "encode", lambda _started, _response: [b"head", stored, b"tail"])
    bench.started[0][1].resolve(EMPTY_METADATA)
    return transport


def test_what_lies_in_the_log_is_read_piece_by_piece_while_it_is_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredAnswer([b"one", b"two"])
    transport = _send_stored(bench, monkeypatch, stored)
    assert transport.written == b"headonetwotail"
    assert stored.read_when == [b"", b"headone"]


def test_an_answer_that_can_not_be_read_to_its_end_closes_the_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredAnswer([b"one", StorageError("the disk is gone")])
    transport = _send_stored(bench, monkeypatch, stored)
    assert transport.written == b"headone"
    assert transport.is_aborted
    assert "the disk is gone" in caplog.text


def test_no_other_answer_gets_in_between_the_pieces_of_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = bench.connect()
    connection.data_received(frame(METADATA, 1))
    connection.pause_writing()
    connection.data_received(frame(METADATA, 2))
    write = transport.writelines

    def write_and_resume(parts: list[bytes]) -> None:
        write(parts)
        # As asyncio's own transports do when the socket takes all at once.
        connection.resume_writing()
        bench.started[-1][1].resolve(EMPTY_METADATA)

    stored = StoredAnswer([b"one", b"two"])
    stored.transport = transport
    answers = iter([[b"head", stored, b"tail"], [b"second"]])
    monkeypatch.setattr(Started, "encode", lambda _started, _response: next(answers))
    monkeypatch.setattr(transport, "writelines", write_and_resume)
    bench.started[0][1].resolve(EMPTY_METADATA)
    assert transport.written == b"headonetwotail"
    assert len(bench.started) == 2, "the second request has its turn once the first is answered"
    bench.started[1][1].resolve(EMPTY_METADATA)
    assert transport.written == b"headonetwotailsecond"


def test_an_answer_is_not_read_further_for_a_client_that_is_gone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = bench.connect()
    connection.data_received(frame(METADATA, 1))
    stored = StoredAnswer([b"one", b"two", b"three"])
    stored.transport = transport
    monkeypatch.setattr(Started, "encode", lambda _started, _response: [b"head", stored, b"tail"])
    monkeypatch.setattr(transport, "writelines", lambda _parts: transport.abort())
    bench.started[0][1].resolve(EMPTY_METADATA)
    assert len(stored.read_when) == 2
    assert transport.written == b""
