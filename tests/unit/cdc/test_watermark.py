"""Rows that are read beside the stream never take the place of newer ones: against a model of a database."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cdc.watermark import TRANSACTION_NS_MAX, TRANSACTIONS_MAX, ChangedKeys, RecentTransactions, View
from headrace.errors import ProtocolError


def test_a_view_sees_what_was_over_when_it_was_taken() -> None:
    view = View.parse("10:20:10,14")
    assert [xid for xid in range(8, 23) if not view.sees(xid)] == [10, 14, 20, 21, 22]
    assert View.parse("10:10:") == View(10, 10, frozenset())


def test_numbers_of_the_stream_are_compared_across_their_overflow() -> None:
    view = View.parse(f"{3 * 2**32 - 2}:{3 * 2**32 + 5}:{3 * 2**32 - 2},{3 * 2**32 + 1}")
    seen = {xid: view.sees(xid) for xid in (2**32 - 3, 2**32 - 2, 2**32 - 1, 0, 1, 4, 5)}
    assert seen == {2**32 - 3: True, 2**32 - 2: False, 2**32 - 1: True, 0: True, 1: False, 4: True, 5: False}


@pytest.mark.parametrize("text", ["", "1:2", "a:b:c", "1:2:3:4"])
def test_what_is_no_view_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="is no snapshot of PostgreSQL"):
        View.parse(text)


def test_after_a_truncation_no_row_of_the_chunk_is_left() -> None:
    changed = ChangedKeys()
    changed.watch("t")
    changed.note(21, None)
    assert b"any" in changed.overtaken(View.parse("20:20:"))


def test_another_table_begins_with_nothing_noted_and_what_all_views_see_is_forgotten() -> None:
    changed = ChangedKeys()
    changed.watch("t")
    changed.note(5, b"a")
    changed.note(25, b"b")
    assert b"a" not in changed.overtaken(View.parse("20:20:"))
    assert changed.key_count == 1
    changed.watch("t")
    assert changed.key_count == 1
    changed.watch("u")
    assert changed.key_count == 0


def test_a_transaction_that_stays_open_does_not_keep_the_keys_of_others() -> None:
    changed = ChangedKeys()
    changed.watch("t")
    for xid in range(11, 40):
        changed.note(xid, b"%d" % xid)
    assert list(changed.overtaken(View.parse("10:39:10")).keys) == [b"39"]
    assert changed.key_count == 1


def test_of_the_last_transactions_it_is_known_which_a_view_did_not_see() -> None:
    recent = RecentTransactions()
    for xid in range(5, TRANSACTIONS_MAX + 7):
        recent.add(xid, 1)
    copied = recent.copy(1)
    recent.add(TRANSACTIONS_MAX + 7, 2)
    view = View.parse(f"5:{TRANSACTIONS_MAX + 6}:5,9")
    assert recent.unseen_by(view) == {9, TRANSACTIONS_MAX + 6, TRANSACTIONS_MAX + 7}
    assert copied.unseen_by(view) == {9, TRANSACTIONS_MAX + 6}
    # Its number may be that of one to come by now.
    assert recent.copy(TRANSACTION_NS_MAX + 1).unseen_by(view) == {TRANSACTIONS_MAX + 7}


@dataclass
class Database:
    """One table, whose commits are in the log before other sessions see them."""

    visible: dict[bytes, int] = field(default_factory=dict)
    pending: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """Transactions that have begun and that others do not see, by number: the key and the value."""
    logged: set[int] = field(default_factory=set)
    log: list[tuple[str, int, bytes, int]] = field(default_factory=list)
    next_xid: int = 3

    def begin(self, key: bytes) -> None:
        if key not in {each[0] for each in self.pending.values()}:
            self.pending[self.next_xid] = (key, self.next_xid)
            self.next_xid += 1

    def commit(self, choice: int) -> None:
        """The commit is logged; nobody sees it yet."""
        open_xids = sorted(set(self.pending) - self.logged)
        if open_xids:
            xid = open_xids[choice % len(open_xids)]
            self.logged.add(xid)
            self.log.append(("change", xid, *self.pending[xid]))

    def show(self, choice: int) -> None:
        shown = sorted(self.logged)
        if shown:
            xid = shown[choice % len(shown)]
            key, value = self.pending.pop(xid)
            self.visible[key] = value
            self.logged.remove(xid)

    def view(self) -> View:
        xmin = min(self.pending, default=self.next_xid)
        return View(xmin, self.next_xid, frozenset(self.pending))


@given(
    st.lists(st.tuples(st.sampled_from(["begin", "commit", "show", "read"]), st.integers(0, 5)), max_size=60)
)
def test_whatever_goes_on_beside_a_snapshot_the_topic_ends_as_the_table(steps: list[tuple[str, int]]) -> None:
    database = Database()
    reads: dict[int, tuple[View, dict[bytes, int]]] = {}
    for action, choice in [*steps, *[("commit", 0), ("show", 0)] * len(steps), ("read", 0)]:
        if action == "begin":
            database.begin(b"%d" % choice)
        elif action == "commit":
            database.commit(choice)
        elif action == "show":
            database.show(choice)
        else:
            number = len(reads)
            reads[number] = (database.view(), dict(database.visible))
            database.log.append(("watermark", number, b"", 0))
    topic: dict[bytes, int] = {}
    changed = ChangedKeys()
    changed.watch("t")
    for kind, number, key, value in database.log:
        if kind == "change":
            changed.note(number, key)
            topic[key] = value
        else:
            view, rows = reads[number]
            overtaken = changed.overtaken(view)
            topic |= {key: value for key, value in rows.items() if key not in overtaken}
    assert topic == database.visible
