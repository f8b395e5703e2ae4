"""Patterns of topic exchanges, found by walking the words of a routing key.

A pattern is words between dots. `*` stands for exactly one word, `#` for any number of them, also none. Each
node of the trie is one word of the patterns that share it. A key is matched by keeping the set of nodes
that its words so far can have led to; each is kept once, so a key with many words costs words times nodes at
most, however many `#` the patterns have.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


def words(text: str) -> list[str]:
    """The words between the dots; an empty text has none."""
    return text.split(".") if text else []


class _Node(Generic[T]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.values: dict[T, None] = {}


class TopicTrie(Generic[T]):
    """Values under patterns."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        """Put a value under a pattern."""
        node = self._root
        for word in words(pattern):
            node = node.children.setdefault(word, _Node())
        node.values[value] = None

    def remove(self, pattern: str, value: T) -> None:
        """Take a value away that is there, and the nodes that nothing needs any more."""
        node = self._root
        path = []
        for word in words(pattern):
            path.append((node, word))
            node = node.children[word]
        del node.values[value]
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.values or child.children:
                break
            del parent.children[word]

    def match(self, key: str) -> list[T]:
        """The values whose patterns fit a key, each once for each pattern."""
        # A node that is reached through "#" stays reached by every further word.
        here = _with_hashes({id(self._root): (self._root, False)})
        for word in words(key):
            reached: dict[int, tuple[_Node[T], bool]] = {}
            for node, is_hash in here.values():
                if is_hash:
                    reached[id(node)] = (node, True)
                for each in (word, "*") if word != "*" else ("*",):
                    child = node.children.get(each)
                    if child is not None and id(child) not in reached:
                        reached[id(child)] = (child, False)
            here = _with_hashes(reached)
        return [value for node, _ in here.values() for value in node.values]


def _with_hashes(nodes: dict[int, tuple[_Node[T], bool]]) -> dict[int, tuple[_Node[T], bool]]:
    """These nodes and those that "#" leads to without a word."""
    found = dict(nodes)
    waiting = [node for node, _ in nodes.values()]
    while waiting:
        child = waiting.pop().children.get("#")
        if child is not None and not found.get(id(child), (child, False))[1]:
            found[id(child)] = (child, True)
            waiting.append(child)
    return found
