"""The events that go both ways: what happens to a few orders, in turn."""

from __future__ import annotations

from typing import Final

STEPS: Final = ("placed", "paid", "packed", "shipped", "delivered")
ORDER_COUNT: Final = 8


def order_events() -> list[dict[str, object]]:
    """Each order goes through its steps; the orders take turns, so that their events are mixed."""
    return [
        {"number": turn * ORDER_COUNT + order, "order": f"order-{order}", "step": turn, "what": what}
        for turn, what in enumerate(STEPS)
        for order in range(ORDER_COUNT)
    ]
