"""Headrace: a streaming platform in one Python package.

    import headrace

    with headrace.Broker() as broker:
        print(broker.bootstrap)     # any Kafka client can use this address

Pipelines on Spark live in `headrace.streams`; importing `headrace` alone needs no Spark and no Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    # The broker's modules are loaded when it is first asked for: `import headrace` stays cheap.
    if name == "Broker":
        from headrace.broker import Broker  # noqa: PLC0415  # see above

        return Broker
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
