"""What every journal of events promises, as one class of tests.

class TestMyJournal(JournalContract):
    @pytest.fixture
    def journal(self): ...
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace.errors import CommandIdReused, ConditionConflict, EventsError, VersionConflict
from headrace.events.journal import Journal
from headrace.events.records import (
    ANY,
    NONE,
    Append,
    Appended,
    CommandMark,
    Condition,
    NewEvent,
    Snapshot,
    StreamWrite,
)

__all__ = ["JournalContract", "command", "new", "to", "write"]


def new(
    type_: str = "Happened", data: bytes = b"{}", *, tags: Sequence[str] = (), subjects: Sequence[str] = ()
) -> NewEvent:
    """An event to append."""
    return NewEvent(
        id=uuid4().hex,
        type=type_,
        schema_version=1,
        data=data,
        metadata=b'{"actor":"me"}',
        tags=tuple(tags),
        subjects=tuple(subjects),
    )


def to(stream: str, *events: NewEvent, expected: int = ANY) -> StreamWrite:
    """Events for a stream."""
    return StreamWrite(stream=stream, events=events, expected=expected)


def write(
    journal: Journal, stream: str, *events: NewEvent, expected: int = ANY, mark: CommandMark | None = None
) -> Appended:
    """Append to one stream."""
    return journal.append(Append(writes=(to(stream, *events, expected=expected),), command=mark))


def command(id_: str, fingerprint: bytes = b"it") -> CommandMark:
    """How a command is remembered."""
    return CommandMark(id=id_, fingerprint=fingerprint)


class JournalContract:
    """Tests for any journal; `journal` is a fixture that gives an empty one."""

    @pytest.mark.parametrize("character", ["\0", "\x1e"])
    @pytest.mark.parametrize("where", ["stream", "command", "type", "tag", "subject"])
    @pytest.mark.parametrize("is_alone", [True, False])
    def test_a_name_with_a_character_that_cannot_be_stored_is_refused(
        self, journal: Journal, where: str, character: str, *, is_alone: bool
    ) -> None:
        name = f"x{character}y"
        event = {"type": new(name), "tag": new(tags=[name]), "subject": new(subjects=[name])}.get(
            where, new()
        )
        streams = [f"a-{name}" if where == "stream" else "a-1", *([] if is_alone else ["a-2"])]
        append = Append(
            writes=tuple(to(stream, event) for stream in streams),
            command=command(name if where == "command" else "c"),
        )

        with pytest.raises(EventsError, match="control character"):
            journal.append(append)

        assert (journal.head(), journal.stored_types()) == (0, set())

    def test_an_empty_journal_has_nothing(self, journal: Journal) -> None:
        assert journal.head() == 0
        assert journal.read_all() == []
        assert journal.read_stream("a-1") == []
        assert journal.stream_version("a-1") == 0
        assert journal.streams() == []
        assert journal.types() == []
        assert journal.stored_types() == set()
        assert journal.snapshot("a-1") == (None, 0)
        assert journal.position_at(datetime.now(UTC)) == 0

    def test_what_is_appended_is_read_as_it_was_written(self, journal: Journal) -> None:
        event = new(
            "Opened",
            b'{"name":"\xc3\x85da \\u0000 \\u001e \\" \\\\ {}"}',
            tags=('a:"1"', "b\\"),
            subjects=("x,y",),
        )

        write(journal, "a-1", event)

        (stored,) = journal.read_all()
        assert (stored.position, stored.stream, stored.version) == (1, "a-1", 1)
        assert (stored.id, stored.type, stored.schema_version) == (UUID(event.id), "Opened", 1)
        assert stored.data == event.data
        assert b'"actor":"me"' in stored.metadata
        assert stored.tags == event.tags
        assert stored.subjects == event.subjects
        assert stored.recorded_at.tzinfo is not None
        assert journal.read_stream("a-1") == [stored]
        assert [tuple(each) for each in journal.read_folded("a-1")] == [(1, "Opened", 1, event.data)]

    def test_events_of_one_append_keep_what_is_their_own(self, journal: Journal) -> None:
        one = new("Opened", b'{"a":1}', tags=("x",), subjects=("you",))
        others: list[dict[str, Any]] = [
            {"type": "Closed"},
            {"schema_version": 2},
            {"metadata": b"{}"},
            {"tags": ()},
            {"subjects": ("you", "me")},
        ]
        for count in range(len(others) + 1):
            for chosen in combinations(others, count):
                unlike = one._replace(data=b"{}", **{key: each[key] for each in chosen for key in each})
                events = [each._replace(id=uuid4().hex) for each in (one, unlike, one)]
                stream = f"a-{uuid4().hex}"

                write(journal, stream, *events)

                read = journal.read_stream(stream)
                assert [
                    (UUID(each.id), each.type, each.schema_version, each.data, each.tags, each.subjects)
                    for each in events
                ] == [
                    (each.id, each.type, each.schema_version, each.data, each.tags, each.subjects)
                    for each in read
                ]
                assert [b'"actor":"me"' in each.metadata for each in read] == [
                    b'"actor":"me"' in each.metadata for each in events
                ]

    def test_positions_and_versions_have_no_gaps(self, journal: Journal) -> None:
        first = write(journal, "a-1", new(), new())
        with pytest.raises(VersionConflict):
            write(journal, "a-1", new(), expected=1)
        second = write(journal, "b-1", new())
        third = write(journal, "a-1", new())

        assert [(each.after, each.position) for each in (first, second, third)] == [(0, 2), (2, 3), (3, 4)]
        assert [(each.stream, each.version) for each in journal.read_all()] == [
            ("a-1", 1),
            ("a-1", 2),
            ("b-1", 1),
            ("a-1", 3),
        ]
        assert third.versions == {"a-1": 3}

    @pytest.mark.parametrize("expected", [1, 3, 99])
    def test_another_version_than_expected_is_a_conflict(self, journal: Journal, expected: int) -> None:
        write(journal, "a-1", new(), new())

        with pytest.raises(VersionConflict) as conflict:
            write(journal, "a-1", new(), expected=expected)

        assert (conflict.value.stream, conflict.value.expected, conflict.value.actual) == ("a-1", expected, 2)
        assert conflict.value.definite
        assert journal.head() == 2

    def test_none_expects_a_stream_without_events(self, journal: Journal) -> None:
        write(journal, "a-1", new(), expected=NONE)

        with pytest.raises(VersionConflict):
            write(journal, "a-1", new(), expected=NONE)

        write(journal, "a-1", new(), expected=1)
        assert journal.stream_version("a-1") == 2

    def test_several_streams_are_appended_all_or_none(self, journal: Journal) -> None:
        write(journal, "b-1", new())
        writes = (to("a-1", new(), new(), expected=NONE), to("b-1", new(), expected=NONE))

        with pytest.raises(VersionConflict, match="b-1"):
            journal.append(Append(writes=writes))
        assert journal.read_stream("a-1") == []

        appended = journal.append(Append(writes=(writes[0], to("b-1", new(), expected=1), to("c-1"))))
        assert appended.versions == {"a-1": 2, "b-1": 2, "c-1": 0}
        assert (appended.after, appended.position) == (1, 4)

    def test_a_stream_can_not_be_named_twice(self) -> None:
        with pytest.raises(EventsError, match="twice"):
            Append(writes=(to("a-1", new()), to("a-1", new())))

    def test_a_command_is_appended_once(self, journal: Journal) -> None:
        first = write(journal, "a-1", new(), new(), mark=command("c1"))
        write(journal, "a-1", new())
        again = write(journal, "a-1", new(), new(), expected=NONE, mark=command("c1"))

        assert journal.head() == 3
        assert again.is_repeat
        assert not first.is_repeat
        assert (again.after, again.position, again.versions) == (0, 2, {"a-1": 2})
        assert journal.command(command("c1")) == again
        assert journal.command(command("c2")) is None

    def test_another_command_under_the_same_id_is_refused(self, journal: Journal) -> None:
        write(journal, "a-1", new(), mark=command("c1"))

        with pytest.raises(CommandIdReused, match="c1"):
            write(journal, "a-1", new(), mark=command("c1", b"other"))
        with pytest.raises(CommandIdReused, match="c1"):
            journal.command(command("c1", b"other"))

        assert journal.head() == 1

    def test_a_command_without_events_is_remembered(self, journal: Journal) -> None:
        write(journal, "a-1", new())
        first = write(journal, "a-1", mark=command("c1"))
        again = write(journal, "a-1", mark=command("c1"))

        assert (first.after, first.position, first.versions) == (1, 1, {"a-1": 1})
        assert again.is_repeat
        assert journal.head() == 1

    def test_a_command_that_met_a_conflict_is_not_remembered(self, journal: Journal) -> None:
        with pytest.raises(VersionConflict):
            write(journal, "a-1", new(), expected=5, mark=command("c1"))

        assert journal.command(command("c1")) is None
        assert not write(journal, "a-1", new(), mark=command("c1")).is_repeat

    @pytest.mark.parametrize(
        ("types", "tags", "is_conflict"),
        [
            ({"Booked"}, {"seat:1"}, True),
            ({"Booked", "Other"}, set(), True),
            (set(), {"seat:1", "hall:2"}, True),
            ({"Booked"}, {"seat:2"}, False),
            ({"Other"}, {"seat:1"}, False),
            (set(), {"seat:1", "hall:3"}, False),
        ],
    )
    def test_a_condition_rules_out_events_after_its_position(
        self, journal: Journal, types: set[str], tags: set[str], is_conflict: bool
    ) -> None:
        write(journal, "a-1", new("Before", tags=("seat:1", "hall:2")))
        write(journal, "a-1", new("Booked", tags=("seat:1", "hall:2")))
        named = Condition(after=1, types=frozenset(types), tags=frozenset(tags))
        later = Condition(after=2, types=frozenset(types), tags=frozenset(tags))

        if is_conflict:
            with pytest.raises(ConditionConflict) as conflict:
                journal.append(Append(writes=(to("b-1", new()),), conditions=(later, named)))
            assert conflict.value.position == 2
            assert journal.head() == 2
        else:
            journal.append(Append(writes=(to("b-1", new()),), conditions=(named,)))
        journal.append(Append(writes=(to("c-1", new()),), conditions=(later,)))

    def test_events_are_read_by_type_and_by_tag(self, journal: Journal) -> None:
        for number in range(4):
            write(journal, "a-1", new("Even" if number % 2 == 0 else "Odd", tags=(f"n:{number}", "all")))
        write(journal, "a-1", new("Plain"))

        def read(**chosen: Sequence[str]) -> list[int]:
            return [event.position for event in journal.read_all(**chosen)]  # type: ignore[arg-type]

        assert read(types=["Even"]) == [1, 3]
        assert read(types=["Odd", "Plain"]) == [2, 4, 5]
        assert read(tags=["all"]) == [1, 2, 3, 4]
        assert read(tags=["all", "n:2"]) == [3]
        assert read(types=["Even"], tags=["n:1"]) == []
        assert [event.position for event in journal.read_all(after=1, types=["Even"])] == [3]

    def test_reads_go_on_where_the_last_one_ended(self, journal: Journal) -> None:
        write(journal, "a-1", *[new() for _ in range(7)])

        assert [each.position for each in journal.read_all(after=2, limit=3)] == [3, 4, 5]
        assert [each.version for each in journal.read_stream("a-1", after_version=5, limit=3)] == [6, 7]
        assert [each.version for each in journal.read_folded("a-1", after_version=1, limit=2)] == [2, 3]
        assert [each.version for each in journal.read_folded("a-1", until_position=2)] == [1, 2]

    def test_streams_are_listed_by_name_and_category(self, journal: Journal) -> None:
        for stream in ("a-2", "b-1", "a-1", "aa-1", "a-1", "a-\u00e9"):
            write(journal, stream, new())

        assert [each.stream for each in journal.streams()] == ["a-1", "a-2", "a-\u00e9", "aa-1", "b-1"]
        listed = journal.streams(category="a", after="a-1", limit=1)
        assert [(each.stream, each.version, each.position) for each in listed] == [("a-2", 1, 1)]
        assert [each.stream for each in journal.streams(category="a")] == ["a-1", "a-2", "a-\u00e9"]

    def test_types_are_counted(self, journal: Journal) -> None:
        write(journal, "a-1", new("B"), new("A"), new("B"))

        counts = [
            (each.type, each.schema_version, each.count, each.last_position) for each in journal.types()
        ]
        assert counts == [("A", 1, 1, 2), ("B", 1, 2, 3)]
        assert journal.stored_types() == {("A", 1), ("B", 1)}

    def test_a_position_is_found_by_time(self, journal: Journal) -> None:
        for _ in range(5):
            write(journal, "a-1", new())
        times = [event.recorded_at for event in journal.read_all()]

        assert times == sorted(times)
        assert journal.position_at(times[0] - timedelta(microseconds=1)) == 0
        assert journal.position_at(times[-1]) == 5
        assert journal.position_at(times[2]) == max(n for n, time in enumerate(times, 1) if time <= times[2])

    def test_waiting_ends_when_events_come(self, journal: Journal) -> None:
        assert not journal.wait_beyond(0, timeout_s=0.01)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(journal.wait_beyond, 0, 60.0)
            write(journal, "a-1", new())
            assert waiting.result()
        assert journal.wait_beyond(0, timeout_s=0)

    def test_of_many_that_expect_one_version_one_wins(self, journal: Journal) -> None:
        def attempt(_: int) -> bool:
            try:
                write(journal, "a-1", new(), new(), expected=NONE)
            except VersionConflict:
                return False
            return True

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(attempt, range(16))) == 1
        assert journal.stream_version("a-1") == 2

    def test_readers_see_all_events_once_in_order_while_others_write(self, journal: Journal) -> None:
        def fill(writer: int) -> None:
            for _ in range(20):
                write(journal, f"a-{writer}", new(), new())

        with ThreadPoolExecutor(6) as threads:
            writers = [threads.submit(fill, writer) for writer in range(6)]
            seen: list[int] = []
            while not all(each.done() for each in writers) or journal.head() > len(seen):
                seen.extend(event.position for event in journal.read_all(after=len(seen), limit=50))
            for each in writers:
                each.result()

        assert seen == list(range(1, 241))

    def test_a_snapshot_takes_the_place_of_the_last_one(self, journal: Journal) -> None:
        write(journal, "a-1", new(), new())
        older, newer = _snapshot(1), _snapshot(2)

        assert journal.save_snapshot(older, forgotten_count=0)
        assert journal.save_snapshot(newer, forgotten_count=0)

        assert journal.snapshot("a-1") == (replace(newer, position=2), 0)
        assert not journal.save_snapshot(_snapshot(3), forgotten_count=0)
        assert journal.drop_snapshots(["b-1"]) == 0
        assert journal.drop_snapshots() == 1
        assert journal.snapshot("a-1") == (None, 0)

    def test_a_key_is_made_once(self, journal: Journal) -> None:
        first = journal.make_keys({"ada": b"1" * 32})
        again = journal.make_keys({"ada": b"2" * 32, "bob": b"3" * 32})

        assert first["ada"].key == again["ada"].key == b"1" * 32
        assert {name: each.key for name, each in journal.keys(["ada", "bob", "eve"]).items()} == {
            "ada": b"1" * 32,
            "bob": b"3" * 32,
        }

    def test_forgetting_destroys_the_key_and_the_snapshots_that_may_have_the_data(
        self, journal: Journal
    ) -> None:
        journal.make_keys({"ada": b"1" * 32, "bob": b"2" * 32})
        write(journal, "a-1", new(subjects=("ada",)), new(subjects=("ada", "bob")))
        write(journal, "a-2", new(subjects=("bob",)))
        for stream in ("a-1", "a-2"):
            journal.save_snapshot(_snapshot(1, stream), forgotten_count=0)

        erased = journal.forget("ada", to("forgotten-ada", new("Marker")))

        assert (erased.event_count, erased.streams, erased.snapshots_dropped) == (2, ("a-1",), 1)
        assert erased.position == 4
        assert journal.read_all(after=3)[0].type == "Marker"
        assert journal.snapshot("a-1") == (None, 1)
        assert journal.snapshot("a-2")[0] is not None
        assert journal.keys(["ada"])["ada"].key is None
        assert journal.keys(["ada"])["ada"].forgotten_at == erased.forgotten_at
        assert journal.keys(["bob"])["bob"].key == b"2" * 32

    def test_who_is_forgotten_gets_no_key_again(self, journal: Journal) -> None:
        journal.forget("ada", to("forgotten-ada", new("Marker")))

        assert journal.make_keys({"ada": b"1" * 32})["ada"].key is None
        again = journal.forget("ada", to("forgotten-ada", new("Marker")))
        assert again.is_repeat
        assert (again.position, journal.head()) == (1, 1)

    def test_nobody_is_forgotten_whose_name_can_not_be_stored(self, journal: Journal) -> None:
        with pytest.raises(EventsError, match="control character"):
            journal.forget("a\x1eb", to("forgotten-a\x1eb", new("Marker")))

        assert (journal.head(), dict(journal.keys(["a\x1eb"]))) == (0, {})

    def test_a_snapshot_from_before_somebody_was_forgotten_is_not_saved(self, journal: Journal) -> None:
        write(journal, "a-1", new(subjects=("ada",)))
        _, count = journal.snapshot("a-1")

        journal.forget("ada", to("forgotten-ada", new("Marker")))

        assert not journal.save_snapshot(_snapshot(1), forgotten_count=count)
        assert journal.snapshot("a-1") == (None, 1)


def _snapshot(version: int, stream: str = "a-1") -> Snapshot:
    return Snapshot(
        stream=stream,
        version=version,
        fingerprint="f",
        state=b"\x00state",
        checksum=b"\x01",
    )
