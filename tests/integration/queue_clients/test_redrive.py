"""Dead letters go back to work: all, some, or none; nothing is lost when it is stopped."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from pika.spec import BasicProperties

from headrace.errors import ConfigError
from headrace.queue_clients.properties import copied
from headrace.queue_clients.redrive import DeadLetter, Redrive, RedriveResult, redrive
from headrace.queue_clients.redrive_filter import RedriveFilter
from headrace.testing.failpoints import kill_at


@pytest.fixture
def work(queues: Any, name: str) -> str:
    """A queue whose rejected messages go to NAME.dead."""
    queues.declare(f"{name}.dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    queues.declare(name, **arguments)
    return name


def _die(queues: Any, work: str, *bodies: bytes, **headers: str) -> None:
    queues.publish(work, *bodies, **headers)
    queues.kill_letters(work, len(bodies))
    assert queues.count(f"{work}.dead") >= len(bodies)


def _redrive(queues: Any, asked: Redrive, seen: list[DeadLetter] | None = None) -> RedriveResult:
    result: RedriveResult = queues.run(
        lambda connection: redrive(connection, asked, seen.append if seen is not None else None)
    )
    return result


def test_all_go_back_in_order_to_where_they_died_as_new_messages(queues: Any, work: str) -> None:
    bodies = [str(number).encode() for number in range(250)]
    _die(queues, work, *bodies, tenant="acme")
    result = _redrive(queues, Redrive(queue=f"{work}.dead"))
    assert (result.looked_at, result.moved, result.kept) == (250, 250, 0)
    back = queues.take(work)
    assert [each.body for each in back] == bodies
    assert {tuple(sorted(each.headers)) for each in back} == {("tenant", "x-headrace-redriven")}
    assert len({each.message_id for each in back}) == 250
    assert queues.take(f"{work}.dead") == []


def test_headers_of_types_that_pika_does_not_know_come_back_as_they_were(queues: Any, work: str) -> None:
    headers = {"price": 1.5, "nested": {"list": [0.25, "x"]}}

    async def publish(connection: Any) -> None:
        channel = await connection.channel(confirms=True)
        properties = copied(BasicProperties(delivery_mode=2), headers=headers)
        await channel.publish(b"1", properties=properties, routing_key=work)

    queues.run(publish)
    queues.kill_letters(work, 1)
    assert _redrive(queues, Redrive(queue=f"{work}.dead")).moved == 1
    [back] = queues.take(work)
    assert back.headers == {**headers, "x-headrace-redriven": 1}


def test_a_preview_moves_nothing_and_says_what_it_would(queues: Any, work: str) -> None:
    _die(queues, work, b"1", b"2", b"3")
    seen: list[DeadLetter] = []
    result = _redrive(queues, Redrive(queue=f"{work}.dead", dry_run=True, limit=2), seen)
    assert (result.passed, result.moved) == (2, 0)
    assert [(each.preview, each.reason, each.origin, each.to) for each in seen] == [
        ("1", "rejected", work, work),
        ("2", "rejected", work, work),
    ]
    assert [each.body for each in queues.take(f"{work}.dead")] == [b"1", b"2", b"3"]


def test_what_does_not_pass_stays_in_its_place(queues: Any, work: str) -> None:
    _die(queues, work, *(str(number).encode() for number in range(10)))
    which = RedriveFilter(body=lambda body: int(body) % 2 == 0)
    result = _redrive(queues, Redrive(queue=f"{work}.dead", which=which, limit=3))
    assert (result.looked_at, result.moved) == (5, 3)
    assert [each.body for each in queues.take(work)] == [b"0", b"2", b"4"]
    assert [int(each.body) for each in queues.take(f"{work}.dead")] == [1, 3, 5, 6, 7, 8, 9]


def test_what_no_queue_takes_stays_and_is_told(queues: Any, work: str) -> None:
    _die(queues, work, b"1", b"2")
    result = _redrive(queues, Redrive(queue=f"{work}.dead", to_queue=f"{work}.nowhere"))
    assert (result.moved, result.kept) == (0, 2)
    assert "NO_ROUTE" in result.problems[0]
    assert queues.count(f"{work}.dead") == 2


def test_a_message_that_never_died_stays_unless_it_is_told_where_to(queues: Any, work: str) -> None:
    queues.publish(f"{work}.dead", b"x")
    result = _redrive(queues, Redrive(queue=f"{work}.dead"))
    assert (result.moved, result.kept) == (0, 1)
    assert "--to" in result.problems[0]
    assert _redrive(queues, Redrive(queue=f"{work}.dead", to_queue=work)).moved == 1


def test_what_dies_again_while_others_go_back_is_not_sent_in_circles(queues: Any, work: str) -> None:
    queues.declare(f"{work}.trap", **{"x-message-ttl": 0, **_to(f"{work}.dead")})
    _die(queues, work, b"1", b"2")
    result = _redrive(queues, Redrive(queue=f"{work}.dead", to_queue=f"{work}.trap"))
    assert result.looked_at == 2


def _to(queue: str) -> dict[str, str]:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


def test_a_queue_that_is_not_there_is_said(queues: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="no queue"):
        _redrive(queues, Redrive(queue=name))


def test_killed_between_copy_and_original_nothing_is_lost(queues: Any, work: str, command: Any) -> None:
    bodies = [str(number).encode() for number in range(50)]
    _die(queues, work, *bodies)
    arguments = ("queues", "redrive", f"{work}.dead", "--yes", "--url", queues.url)
    with command(*arguments, environment=kill_at("redrive.confirmed", after=20)) as killed:
        _, said = killed.process.communicate(timeout=400)
    if killed.process.returncode != -signal.SIGKILL:
        pytest.fail(f"it was not killed: {said}")
    back, dead = queues.take(work), queues.take(f"{work}.dead")
    ids = {each.message_id for each in (*back, *dead)}
    assert len(ids) == 50
    assert {each.body for each in (*back, *dead)} == set(bodies)
    assert len(back) >= 20
