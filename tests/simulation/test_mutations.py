"""The simulation finds mistakes: a broker with one of these planted in it fails within a thousand stories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.commit import GroupCommit
from headrace.kafka.consumer_groups import ConsumerGroups
from headrace.kafka.groups.coordinator import GroupCoordinator
from headrace.log.failure import FailStop
from headrace.log.identity import Identity
from headrace.log.partition import PartitionLog
from headrace.log.producers import ACCEPT, ProducerStates
from headrace.testing.disk import SimulatedDisk
from headrace.testing.simulation import story
from headrace.testing.simulation.story import tell

STORY_COUNT = 1_000
WAIT_S = 60.0
"""A broker that hangs is found out sooner than in a good story: that saves time."""

pytestmark = pytest.mark.simulation

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommit, "is_durable", lambda *_: True)


def show_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommit, "high_watermark", lambda _, log: log.end_offset)


def take_duplicates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "check", lambda *_: ACCEPT)


def go_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FailStop, "check", lambda _: None)


def sync_the_active_segment_alone(patch: pytest.MonkeyPatch) -> None:
    sync_segments = PartitionLog._sync_segments
    patch.setattr(PartitionLog, "_sync_segments", lambda log, unsealed: sync_segments(log, unsealed[-1:]))


def sync_no_directories(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "sync_directory", lambda *_: None)


def cut_no_torn_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "truncate", lambda *_: None)


def trust_pages_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "rewrite", lambda *_: None)


def forget_which_producer_ids_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Identity, "_write", lambda *_: None)


def let_zombies_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCoordinator, "check_commit", lambda *_: ErrorCode.none)


def answer_a_commit_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    write = ConsumerGroups.write

    def answer_first(groups: ConsumerGroups, records: Sequence[Any], on_durable: Any) -> None:
        write(groups, records, lambda _error: None)
        on_durable(None)

    patch.setattr(ConsumerGroups, "write", answer_first)


@pytest.mark.parametrize(
    "plant",
    [
        acknowledge_before_the_sync,
        show_what_is_not_durable,
        take_duplicates,
        go_on_after_a_failed_sync,
        sync_the_active_segment_alone,
        sync_no_directories,
        cut_no_torn_end,
        trust_pages_after_a_failed_sync,
        forget_which_producer_ids_are_taken,
        let_zombies_commit,
        answer_a_commit_before_it_is_durable,
    ],
    ids=lambda plant: plant.__name__.replace("_", " "),
)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "STORY_S_MAX", WAIT_S)
    plant(monkeypatch)
    assert any(tell(seed).problems for seed in range(STORY_COUNT))
