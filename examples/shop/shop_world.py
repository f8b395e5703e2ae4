"""What happens in the shop: customers fill carts and order, orders are paid and shipped, prices change.

Each step is one transaction of the database, as a sequence of statements with their values. Nothing here
opens anything: what the shop looks like when it opens is given, and what happens next is decided by the seed.
The shop is the only one who writes its tables, so it knows what is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Final

from shop_catalogue import Product

NEW_CART: Final = "INSERT INTO carts (cart_id, customer) VALUES (%s, %s)"
TOUCH_CART: Final = "UPDATE carts SET updated_at = now() WHERE cart_id = %s"
SET_LINE: Final = (
    "INSERT INTO cart_lines (cart_id, product_id, quantity, price) VALUES (%s, %s, %s, %s) "
    "ON CONFLICT (cart_id, product_id) DO UPDATE SET quantity = excluded.quantity, price = excluded.price"
)
REMOVE_LINE: Final = "DELETE FROM cart_lines WHERE cart_id = %s AND product_id = %s"
REMOVE_CART: Final = "DELETE FROM carts WHERE cart_id = %s"
NEW_ORDER: Final = "INSERT INTO orders (order_id, customer, status, total) VALUES (%s, %s, 'placed', %s)"
NEW_ORDER_LINE: Final = (
    "INSERT INTO order_lines (order_id, line, product_id, quantity, price) VALUES (%s, %s, %s, %s, %s)"
)
SET_STATUS: Final = "UPDATE orders SET status = %s WHERE order_id = %s"
SET_STOCK: Final = "UPDATE products SET stock = %s, updated_at = now() WHERE product_id = %s"
SET_PRICE: Final = "UPDATE products SET price = %s, updated_at = now() WHERE product_id = %s"
ANNOUNCE: Final = (
    "INSERT INTO products (product_id, name, description, category, price, stock) "
    "VALUES (%s, %s, %s, %s, %s, 0)"
)
WITHDRAW: Final = "DELETE FROM products WHERE product_id = %s"

CART_COUNT_MAX: Final = 300
"""When so many are open, the oldest is left behind by its customer."""
CART_LINES_MAX: Final = 20
ORDER_COUNT_MAX: Final = 1_000
"""When so many are open, the oldest goes on before there are more."""
DELIVERY: Final = 500
"""How many of a product come when it runs out."""
CUSTOMERS: Final = ("ada", "ben", "chloe", "dmitri", "elif", "farah", "goran", "hanna", "ines", "jun")
NEXT_STATUS: Final = {"placed": "paid", "paid": "shipped"}
_CENT: Final = Decimal("0.01")

Write = tuple[str, tuple[object, ...]]
"""A statement and its values."""
Step = tuple[Write, ...]
"""The statements of a transaction."""


@dataclass(slots=True)
class Offer:
    """What a product costs now, and how many there are."""

    price: Decimal
    stock: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """So many of a product, for this much each."""

    quantity: int
    price: Decimal


@dataclass(slots=True, kw_only=True)
class Shop:
    """What is in the database, as far as it decides what can happen next."""

    offers: dict[int, Offer]
    """By product."""
    announced: list[int] = field(default_factory=list)
    """Products that nobody can buy yet."""
    carts: dict[int, dict[int, Line]] = field(default_factory=dict)
    """Lines of open carts, by product; the oldest cart first."""
    orders: dict[int, str] = field(default_factory=dict)
    """The status of orders that are not done; the oldest first."""
    next_cart_id: int = 1
    next_order_id: int = 1
    next_product_id: int = 1


class World:
    """Decides what happens next. The shop that it was given is kept up to date."""

    def __init__(self, shop: Shop, seed: int, announcements: Sequence[Product] = ()) -> None:
        if not shop.offers:
            raise ValueError("a shop without products has nothing to sell: give it a catalogue first")
        self._shop = shop
        self._random = Random(seed)
        self._announcements = announcements

    def step(self) -> Step:
        """The next transaction."""
        if len(self._shop.carts) >= CART_COUNT_MAX:
            return self._abandon()
        if len(self._shop.orders) >= ORDER_COUNT_MAX:
            return self._go_on()
        kinds = (
            (self._add, 50),
            (self._check_out, 14 if self._shop.carts else 0),
            (self._go_on, 20 if self._shop.orders else 0),
            (self._remove, 6 if self._shop.carts else 0),
            (self._abandon, 3 if self._shop.carts else 0),
            (self._reprice, 5),
            (self._announce, 1 if self._announcements else 0),
            (self._withdraw, 1 if self._shop.announced else 0),
        )
        (kind,) = self._random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        return kind()

    def _add(self) -> Step:
        """A customer puts something into a cart, or more of it."""
        shop, random = self._shop, self._random
        first: Write
        if not shop.carts or random.random() < 0.3:
            cart_id, shop.next_cart_id = shop.next_cart_id, shop.next_cart_id + 1
            shop.carts[cart_id] = {}
            first = (NEW_CART, (cart_id, random.choice(CUSTOMERS)))
        else:
            cart_id = random.choice(list(shop.carts))
            first = (TOUCH_CART, (cart_id,))
        lines = shop.carts[cart_id]
        is_full = len(lines) >= CART_LINES_MAX
        product_id = random.choice(list(lines if is_full else shop.offers))
        quantity = random.choice((1, 1, 1, 2, 3)) + (lines[product_id].quantity if product_id in lines else 0)
        line = lines[product_id] = Line(quantity=quantity, price=shop.offers[product_id].price)
        return first, (SET_LINE, (cart_id, product_id, line.quantity, line.price))

    def _remove(self) -> Step:
        """A customer changes her mind; a cart without lines stays."""
        cart_id = self._random.choice(list(self._shop.carts))
        lines = self._shop.carts[cart_id]
        if not lines:
            return self._close(cart_id)
        product_id = self._random.choice(list(lines))
        del lines[product_id]
        return (REMOVE_LINE, (cart_id, product_id)), (TOUCH_CART, (cart_id,))

    def _abandon(self) -> Step:
        """The oldest cart is forgotten."""
        return self._close(next(iter(self._shop.carts)))

    def _close(self, cart_id: int) -> Step:
        del self._shop.carts[cart_id]
        return ((REMOVE_CART, (cart_id,)),)

    def _check_out(self) -> Step:
        """A cart becomes an order: one transaction that writes all five tables."""
        shop, random = self._shop, self._random
        cart_id = random.choice(list(shop.carts))
        lines = shop.carts[cart_id]
        if not lines:
            return self._close(cart_id)
        order_id, shop.next_order_id = shop.next_order_id, shop.next_order_id + 1
        shop.orders[order_id] = "placed"
        order = (order_id, random.choice(CUSTOMERS), total_of(lines.values()))
        writes: list[Write] = [(NEW_ORDER, order)]
        for number, (product_id, line) in enumerate(lines.items(), 1):
            writes.append((NEW_ORDER_LINE, (order_id, number, product_id, line.quantity, line.price)))
            writes.append(self._take(product_id, line.quantity))
        return *writes, *self._close(cart_id)

    def _take(self, product_id: int, quantity: int) -> Write:
        offer = self._shop.offers[product_id]
        if offer.stock < quantity:
            offer.stock += DELIVERY
        offer.stock -= quantity
        return SET_STOCK, (offer.stock, product_id)

    def _go_on(self) -> Step:
        """The oldest order is paid, shipped or cancelled."""
        order_id, status = next(iter(self._shop.orders.items()))
        if status == "placed" and self._random.random() < 0.1:
            del self._shop.orders[order_id]
            return ((SET_STATUS, ("cancelled", order_id)),)
        new = NEXT_STATUS[status]
        # Behind the others; one that was shipped is done.
        del self._shop.orders[order_id]
        if new in NEXT_STATUS:
            self._shop.orders[order_id] = new
        return ((SET_STATUS, (new, order_id)),)

    def _reprice(self) -> Step:
        """Up or down by a fifth at most."""
        product_id = self._random.choice(list(self._shop.offers))
        offer = self._shop.offers[product_id]
        change = Decimal(self._random.randint(80, 120)) / 100
        offer.price = max(Decimal(1), (offer.price * change).quantize(_CENT))
        return ((SET_PRICE, (offer.price, product_id)),)

    def _announce(self) -> Step:
        """A product that can be found, and not be bought yet."""
        shop = self._shop
        product_id, shop.next_product_id = shop.next_product_id, shop.next_product_id + 1
        shop.announced.append(product_id)
        new = self._random.choice(self._announcements)
        told = (product_id, f"{new.name} II", new.description, new.category, new.price)
        return ((ANNOUNCE, told),)

    def _withdraw(self) -> Step:
        """A product that was announced does not come after all."""
        return ((WITHDRAW, (self._shop.announced.pop(0),)),)


def total_of(lines: Iterable[Line]) -> Decimal:
    """What they cost together."""
    return sum((line.quantity * line.price for line in lines), Decimal(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PastOrder:
    """An order from before the shop's tables were made."""

    order_id: int
    customer: str
    placed_at: datetime
    lines: tuple[tuple[int, Line], ...]
    """Products and how many."""

    @property
    def total(self) -> Decimal:
        """What it cost."""
        return total_of([line for _, line in self.lines])


def past_orders(
    products: Sequence[Product], *, seed: int, line_count: int, before: datetime
) -> list[PastOrder]:
    """Orders that were shipped long ago, with at least so many lines in all."""
    random, orders, count = Random(seed), list[PastOrder](), 0
    while count < line_count:
        bought = random.sample(products, min(len(products), random.randint(1, 5)))
        lines = tuple(
            (one.product_id, Line(quantity=random.randint(1, 3), price=one.price)) for one in bought
        )
        count += len(lines)
        orders.append(
            PastOrder(
                order_id=len(orders) + 1,
                customer=random.choice(CUSTOMERS),
                placed_at=before - timedelta(minutes=random.randint(60, 500_000)),
                lines=lines,
            )
        )
    return orders
