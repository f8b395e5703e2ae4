"""Exchanges: where published messages go.

    direct    to bindings with the message's routing key
    fanout    to all bindings
    topic     to bindings whose pattern fits: words between dots, * for one word, # for any number of them
    headers   to bindings whose arguments the message's headers have: all of them, or any (x-match)

An exchange knows names only. Who bears them is the virtual host's business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.queue.fields import freeze
from headrace.queue.topic_trie import TopicTrie

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Headers = Callable[[], Mapping[str, object]]

EXCHANGE_KINDS: Final = ("direct", "fanout", "topic", "headers")


class Destination(NamedTuple):
    """A queue or an exchange, by name."""

    kind: str
    name: str


class BindingKey(NamedTuple):
    """What tells two bindings of one exchange apart."""

    destination: Destination
    routing_key: str
    arguments: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """From an exchange to a destination."""

    source: str
    destination: Destination
    routing_key: str
    arguments: dict[str, object] = field(default_factory=dict)

    @property
    def key(self) -> BindingKey:
        """What tells it apart from the others of its exchange."""
        return BindingKey(self.destination, self.routing_key, freeze(self.arguments))


class Matcher(Protocol):
    """How one kind of exchange finds bindings."""

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Take a binding that is new."""
        ...

    def remove(self, key: BindingKey, binding: Binding) -> None:
        """Let go of a binding that is there."""
        ...

    def match(self, routing_key: str, headers: Headers) -> Iterable[Destination]:
        """Where a message goes; a destination may come more than once."""
        ...


class DirectMatcher:
    """Bindings by routing key."""

    def __init__(self) -> None:
        self._by_key: dict[str, dict[BindingKey, Destination]] = {}

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Take a binding that is new."""
        self._by_key.setdefault(binding.routing_key, {})[key] = binding.destination

    def remove(self, key: BindingKey, binding: Binding) -> None:
        """Let go of a binding that is there."""
        found = self._by_key[binding.routing_key]
        del found[key]
        if not found:
            del self._by_key[binding.routing_key]

    def match(self, routing_key: str, headers: Headers) -> Iterable[Destination]:  # noqa: ARG002
        """Where a message goes."""
        return self._by_key.get(routing_key, {}).values()


class FanoutMatcher:
    """All bindings."""

    def __init__(self) -> None:
        self._bindings: dict[BindingKey, Destination] = {}

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Take a binding that is new."""
        self._bindings[key] = binding.destination

    def remove(self, key: BindingKey, binding: Binding) -> None:  # noqa: ARG002
        """Let go of a binding that is there."""
        del self._bindings[key]

    def match(self, routing_key: str, headers: Headers) -> Iterable[Destination]:  # noqa: ARG002
        """Where a message goes."""
        return self._bindings.values()


class TopicMatcher:
    """Bindings by pattern."""

    def __init__(self) -> None:
        self._trie: TopicTrie[BindingKey] = TopicTrie()

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Take a binding that is new."""
        self._trie.add(binding.routing_key, key)

    def remove(self, key: BindingKey, binding: Binding) -> None:
        """Let go of a binding that is there."""
        self._trie.remove(binding.routing_key, key)

    def match(self, routing_key: str, headers: Headers) -> Iterable[Destination]:  # noqa: ARG002
        """Where a message goes."""
        return (key.destination for key in self._trie.match(routing_key))


class HeadersMatcher:
    """Bindings by what the message's headers must be."""

    def __init__(self) -> None:
        self._bindings: dict[BindingKey, Binding] = {}

    def add(self, key: BindingKey, binding: Binding) -> None:
        """Take a binding that is new."""
        self._bindings[key] = binding

    def remove(self, key: BindingKey, binding: Binding) -> None:  # noqa: ARG002
        """Let go of a binding that is there."""
        del self._bindings[key]

    def match(self, routing_key: str, headers: Headers) -> Iterator[Destination]:  # noqa: ARG002
        """Where a message goes."""
        found = headers()
        for binding in self._bindings.values():
            if headers_match(binding.arguments, found):
                yield binding.destination


def headers_match(arguments: Mapping[str, object], headers: Mapping[str, object]) -> bool:
    """Whether a message with these headers fits a binding with these arguments."""
    how = arguments.get("x-match", "all")
    counts_x = how in {"all-with-x", "any-with-x"}
    wanted = {
        name: value
        for name, value in arguments.items()
        if name != "x-match" and (counts_x or not name.startswith("x-"))
    }
    fits = (
        name in headers and (value is None or freeze(headers[name]) == freeze(value))
        for name, value in wanted.items()
    )
    return any(fits) if how in {"any", "any-with-x"} else all(fits)


MATCHERS: Final[dict[str, Callable[[], Matcher]]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
}


class Exchange:
    """An exchange with its bindings."""

    def __init__(  # The properties of a declaration.
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = dict(arguments or {})
        alternate = self.arguments.get("alternate-exchange")
        self.alternate = alternate if isinstance(alternate, str) else None
        self.bindings: dict[BindingKey, Binding] = {}
        self._matcher = MATCHERS[kind]()
        self.published_count = 0

    @property
    def depends_on_headers(self) -> bool:
        """Whether the routing key alone does not say where a message goes."""
        return self.kind == "headers"

    def bind(self, binding: Binding) -> bool:
        """Add a binding; False where it is there already."""
        key = binding.key
        if key in self.bindings:
            return False
        self.bindings[key] = binding
        self._matcher.add(key, binding)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Remove a binding; False where there is none."""
        key = binding.key
        if self.bindings.pop(key, None) is None:
            return False
        self._matcher.remove(key, binding)
        return True

    def match(self, routing_key: str, headers: Headers) -> Iterable[Destination]:
        """Where a message goes; a destination may come more than once."""
        return self._matcher.match(routing_key, headers)
