"""Queue or log: what each does with the same events when a worker is killed in the middle of one."""

from __future__ import annotations

import pytest

import headrace
from order_events import order_events
from queue_or_log import LogOutcome, QueueOutcome, out_of_order, table, through_log, through_queue

ALL = [event["number"] for event in order_events()]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> QueueOutcome:
    with headrace.Broker(amqp=True) as broker:
        return through_queue(broker.amqp_url, tmp_path_factory.mktemp("queue"))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogOutcome:
    with headrace.Broker() as broker:
        return through_log(broker.bootstrap, tmp_path_factory.mktemp("log"))


def test_each_message_of_a_queue_is_handled_by_one_of_the_workers(queue: QueueOutcome) -> None:
    assert sorted(queue.first.numbers + queue.second.numbers) == ALL


def test_each_group_of_the_log_handles_every_event(log: LogOutcome) -> None:
    assert sorted(log.search.numbers) == ALL
    assert set(log.billing.numbers) == set(ALL)


def test_what_a_killed_worker_of_a_queue_held_comes_again_alone_and_flagged(queue: QueueOutcome) -> None:
    assert queue.second.redelivered_count == 1
    assert queue.first.redelivered_count == 0


def test_what_a_killed_reader_of_the_log_did_since_its_last_commit_comes_again(
    log: LogOutcome,
) -> None:
    assert log.again_count == 2
    assert log.billing.redelivered_count == 0


def test_the_other_groups_of_the_log_do_not_notice_that_one_was_killed(log: LogOutcome) -> None:
    assert len(log.search.events) == len(ALL)


def test_a_queue_with_two_workers_mixes_up_the_steps_of_an_order(queue: QueueOutcome) -> None:
    assert len(queue.out_of_order) == 1


def test_the_log_keeps_the_steps_of_each_order_in_turn(log: LogOutcome) -> None:
    assert log.out_of_order == ()
    assert out_of_order(log.search.events) == ()


def test_nothing_is_left_in_a_queue_when_all_is_acknowledged(queue: QueueOutcome) -> None:
    assert queue.left_count == 0


def test_the_log_keeps_everything_for_readers_that_come_later(log: LogOutcome) -> None:
    assert log.left_count == len(ALL)
    assert sorted(log.replayed.numbers) == ALL


def test_the_table_tells_what_was_seen(queue: QueueOutcome, log: LogOutcome) -> None:
    shown = table(queue, log)
    assert "1 message comes again, flagged as redelivered" in shown
    assert "2 events since the last commit come again, not flagged" in shown
    assert "all 40 events" in shown


def test_steps_out_of_turn_are_found() -> None:
    events = [
        {"order": "a", "step": 0},
        {"order": "b", "step": 1},
        {"order": "a", "step": 2},
        {"order": "b", "step": 0},
        {"order": "a", "step": 2},
    ]
    assert out_of_order(events) == ("b",)
