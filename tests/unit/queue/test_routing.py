from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.queue.fields import write_table
from headrace.queue.properties import write_properties
from headrace.queue.topic_trie import TopicTrie
from headrace.testing.queues import QueueBench

PLAIN = write_properties()
words = st.sampled_from(["a", "b", ""])
keys = st.lists(words, max_size=5).map(".".join)
patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=5).map(".".join)


def fits(pattern: str, key: str) -> bool:
    """The same by backtracking."""

    def match(wanted: list[str], found: list[str]) -> bool:
        if not wanted:
            return not found
        if wanted[0] == "#":
            return any(match(wanted[1:], found[index:]) for index in range(len(found) + 1))
        return bool(found) and wanted[0] in {"*", found[0]} and match(wanted[1:], found[1:])

    return match(pattern.split(".") if pattern else [], key.split(".") if key else [])


@given(patterns=st.lists(patterns, max_size=8), removed=st.data(), key=keys)
@settings(max_examples=300)
def test_a_trie_finds_what_fits_and_forgets_what_was_removed(
    patterns: list[str], removed: st.DataObject, key: str
) -> None:
    trie: TopicTrie[int] = TopicTrie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    gone = removed.draw(st.sets(st.sampled_from(range(len(patterns))))) if patterns else set()
    for number in gone:
        trie.remove(patterns[number], number)
    expected = [n for n, pattern in enumerate(patterns) if n not in gone and fits(pattern, key)]
    assert sorted(trie.match(key)) == expected


def test_a_trie_that_is_emptied_keeps_no_nodes() -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.add("a.*.#", 1)
    trie.add("a.b", 2)
    trie.remove("a.*.#", 1)
    trie.remove("a.b", 2)
    assert not trie._root.children


def test_many_hashes_do_not_make_a_match_slow() -> None:
    trie: TopicTrie[int] = TopicTrie()
    trie.add(".".join(["#", "a"] * 20), 1)
    assert trie.match(".".join(["a"] * 100 + ["b"])) == []


Topology = dict[str, list[Any]]
topologies = st.fixed_dictionaries(
    {
        "kinds": st.lists(st.sampled_from(["direct", "fanout", "topic"]), min_size=3, max_size=3),
        "to_queues": st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), patterns), max_size=6),
        "to_exchanges": st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), patterns), max_size=6),
        "alternates": st.lists(st.one_of(st.none(), st.integers(0, 2)), min_size=3, max_size=3),
    }
)


def expected_queues(topology: Topology, key: str) -> set[str]:
    """Where a message to the first exchange goes, in the plainest words."""
    kinds, alternates = topology["kinds"], topology["alternates"]
    queues: set[str] = set()
    visited: set[int] = set()
    waiting = [0]
    while waiting:
        exchange = waiting.pop()
        if exchange in visited:
            continue
        visited.add(exchange)

        def takes(binding: tuple[int, int, str], exchange: int = exchange) -> bool:
            source, _, pattern = binding
            kind = str(kinds[exchange])
            return source == exchange and (
                kind == "fanout" or (pattern == key if kind == "direct" else fits(pattern, key))
            )

        found = [f"q{each[1]}" for each in topology["to_queues"] if takes(each)]
        further = [each[1] for each in topology["to_exchanges"] if takes(each)]
        if not found and not further and alternates[exchange] is not None:
            further = [int(str(alternates[exchange]))]
        queues |= set(found)
        waiting += further
    return queues


@given(topology=topologies, key=keys)
@settings(max_examples=150, deadline=None)
def test_a_message_comes_once_to_each_queue_that_any_way_leads_to(topology: Topology, key: str) -> None:
    channel, _ = QueueBench().channel()
    for number in range(3):
        alternate = topology["alternates"][number]
        arguments = {} if alternate is None else {"alternate-exchange": f"x{alternate}"}
        channel.exchange_declare(f"x{number}", str(topology["kinds"][number]), arguments=arguments)
        channel.queue_declare(f"q{number}")
    for source, target, pattern in topology["to_queues"]:
        channel.queue_bind(f"q{target}", f"x{source}", pattern)
    for source, target, pattern in topology["to_exchanges"]:
        channel.exchange_bind(f"x{target}", f"x{source}", pattern)
    # The second message takes the way that was remembered.
    for count in (1, 2):
        channel.basic_publish("x0", key, PLAIN, b"body")
        counts = {f"q{n}": channel.queue_declare(f"q{n}").message_count for n in range(3)}
        assert {name for name, found in counts.items() if found} == expected_queues(topology, key)
        assert set(counts.values()) <= {0, count}


@pytest.mark.parametrize(
    ("arguments", "headers", "is_match"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"x-match": "any", "a": 1, "b": "x"}, {"a": 1}, True),
        ({"x-match": "any", "a": 1}, {"b": 1}, False),
        ({"x-match": "all", "a": None}, {"a": "whatever"}, True),
        ({"x-match": "all", "x-mine": 1}, {}, True),
        ({"x-match": "all-with-x", "x-mine": 1}, {}, False),
        ({"x-match": "any-with-x", "x-mine": 1}, {"x-mine": 1}, True),
        ({}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": True}, {"a": 1}, False),
    ],
)
def test_headers_decide_where_they_have_to(
    arguments: dict[str, object], headers: dict[str, object], is_match: bool
) -> None:
    channel, _ = QueueBench().channel()
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.headers", "", arguments)
    channel.basic_publish("amq.match", "", write_properties(headers=write_table(headers)), b"")
    assert channel.queue_declare("q").message_count == 0
    channel.basic_publish("amq.headers", "", write_properties(headers=write_table(headers)), b"")
    assert channel.queue_declare("q").message_count == int(is_match)


def test_a_mandatory_message_that_no_queue_takes_comes_back() -> None:
    bench = QueueBench()
    channel, sink = bench.channel()
    channel.confirm_select()
    channel.basic_publish("amq.direct", "nowhere", PLAIN, b"lost")
    channel.basic_publish("amq.direct", "nowhere", PLAIN, b"back", mandatory=True)
    bench.run()
    assert sink.returns == [(312, "NO_ROUTE", b"back")]
    assert sink.confirms == [(2, True)]


def test_the_same_message_goes_where_it_is_bound_to_at_the_time() -> None:
    bench = QueueBench()
    channel, sink = bench.channel()
    for name in ("old", "new"):
        channel.queue_declare(name)
    queues = bench.broker.vhosts["/"].queues

    def publish() -> tuple[int, int]:
        channel.basic_publish("amq.fanout", "", PLAIN, b"the same", mandatory=True)
        return queues["old"].count, queues["new"].count

    channel.queue_bind("old", "amq.fanout", "")
    assert publish() == (1, 0)
    channel.queue_bind("new", "amq.fanout", "")
    assert publish() == (2, 1)
    channel.queue_unbind("old", "amq.fanout", "")
    assert publish() == (2, 2)
    channel.queue_delete("new")
    channel.queue_declare("new")
    assert publish() == (2, 0)
    assert len(sink.returns) == 1


def test_copies_go_to_further_routing_keys_of_the_headers() -> None:
    channel, _ = QueueBench().channel()
    for name in ("one", "two", "three"):
        channel.queue_declare(name)
    headers = write_table({"CC": ["two", "one"], "BCC": ["three"]})
    channel.basic_publish("", "one", write_properties(headers=headers), b"")
    assert [channel.queue_declare(name).message_count for name in ("one", "two", "three")] == [1, 1, 1]


def test_a_binding_made_twice_is_one_and_unbinding_ends_it() -> None:
    channel, _ = QueueBench().channel()
    channel.queue_declare("q")
    for _ in range(2):
        channel.queue_bind("q", "amq.topic", "a.*")
    channel.basic_publish("amq.topic", "a.b", PLAIN, b"")
    channel.queue_unbind("q", "amq.topic", "a.*")
    channel.queue_unbind("q", "amq.topic", "a.*")
    channel.basic_publish("amq.topic", "a.b", PLAIN, b"")
    assert channel.queue_declare("q").message_count == 1


def test_the_reference_agrees_with_regular_expressions() -> None:
    assert fits("a.#.b", "a.b")
    assert bool(re.fullmatch(r"a(\..+)?", "a")) == fits("a.#", "a")
