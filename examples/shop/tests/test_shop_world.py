"""What happens in the shop, without a database: a small one in memory takes the steps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shop_world
from shop_catalogue import CATEGORIES, Product, catalogue
from shop_world import Offer, Shop, World, past_orders


def shop_of(products: list[Product]) -> Shop:
    offers = {one.product_id: Offer(price=one.price, stock=one.stock) for one in products}
    return Shop(offers=offers, next_product_id=len(products) + 1)


class Tables:
    """The shop's tables, which take only what the schema allows."""

    def __init__(self, products: list[Product]) -> None:
        self.products = {one.product_id: (one.price, one.stock) for one in products}
        self.carts: set[int] = set()
        self.cart_lines: dict[tuple[int, int], tuple[int, Decimal]] = {}
        self.orders: dict[int, tuple[str, Decimal]] = {}
        self.order_lines: dict[tuple[int, int], tuple[int, int, Decimal]] = {}

    def take(self, statement: str, values: tuple[object, ...]) -> None:
        """Do what a statement would."""
        name = next(name for name, text in vars(shop_world).items() if text == statement)
        getattr(self, name.lower())(*values)

    def new_cart(self, cart_id: int, _customer: str) -> None:
        assert cart_id not in self.carts
        self.carts.add(cart_id)

    def touch_cart(self, cart_id: int) -> None:
        assert cart_id in self.carts

    def set_line(self, cart_id: int, product_id: int, quantity: int, price: Decimal) -> None:
        assert cart_id in self.carts
        assert price == self.products[product_id][0]
        assert quantity > 0
        self.cart_lines[cart_id, product_id] = (quantity, price)

    def remove_line(self, cart_id: int, product_id: int) -> None:
        del self.cart_lines[cart_id, product_id]

    def remove_cart(self, cart_id: int) -> None:
        self.carts.remove(cart_id)
        self.cart_lines = {key: line for key, line in self.cart_lines.items() if key[0] != cart_id}

    def new_order(self, order_id: int, _customer: str, total: Decimal) -> None:
        assert order_id not in self.orders
        self.orders[order_id] = ("placed", total)

    def new_order_line(
        self, order_id: int, line: int, product_id: int, quantity: int, price: Decimal
    ) -> None:
        assert (order_id, line) not in self.order_lines
        assert order_id in self.orders
        assert product_id in self.products
        self.order_lines[order_id, line] = (product_id, quantity, price)

    def set_status(self, status: str, order_id: int) -> None:
        before, total = self.orders[order_id]
        assert (before, status) in {("placed", "paid"), ("placed", "cancelled"), ("paid", "shipped")}
        self.orders[order_id] = (status, total)

    def set_stock(self, stock: int, product_id: int) -> None:
        assert stock >= 0
        self.products[product_id] = (self.products[product_id][0], stock)

    def set_price(self, price: Decimal, product_id: int) -> None:
        assert price > 0
        assert price == round(price, 2)
        self.products[product_id] = (price, self.products[product_id][1])

    def announce(
        self, product_id: int, _name: str, _description: str, _category: str, price: Decimal
    ) -> None:
        assert product_id not in self.products
        self.products[product_id] = (price, 0)

    def withdraw(self, product_id: int) -> None:
        del self.products[product_id]
        assert product_id not in {product for _, product in self.cart_lines}
        assert product_id not in {product for product, _, _ in self.order_lines.values()}


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_every_step_fits_the_tables_and_the_shop_knows_what_is_in_them(seed: int) -> None:
    # So few of each that they run out.
    products = [replace(one, stock=3) for one in catalogue(seed, 30)]
    tables, shop = Tables(products), shop_of(products)
    world = World(shop, seed, products)
    for _ in range(1_500):
        for statement, values in world.step():
            tables.take(statement, values)

    assert {product: (offer.price, offer.stock) for product, offer in shop.offers.items()} == {
        product: told for product, told in tables.products.items() if product not in shop.announced
    }
    assert shop.carts.keys() == tables.carts
    assert {
        (cart, product): (line.quantity, line.price)
        for cart, lines in shop.carts.items()
        for product, line in lines.items()
    } == tables.cart_lines
    for order_id, (_, total) in tables.orders.items():
        lines = [line for key, line in tables.order_lines.items() if key[0] == order_id]
        assert total == sum(quantity * price for _, quantity, price in lines)
        assert lines


def test_all_kinds_of_steps_come_up() -> None:
    products = catalogue(1, 30)
    world = World(shop_of(products), 1, products)
    statements = {statement for _ in range(2_000) for statement, _ in world.step()}

    assert statements == {text for name, text in vars(shop_world).items() if name.isupper() and _is_sql(text)}


def _is_sql(text: object) -> bool:
    return isinstance(text, str) and text.startswith(("INSERT", "UPDATE", "DELETE"))


def test_a_shop_without_products_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to sell"):
        World(Shop(offers={}), 1)


def test_the_same_seed_makes_the_same_catalogue_whose_names_differ() -> None:
    products = catalogue(7, 2_000)

    assert products == catalogue(7, 2_000)
    assert len({one.name for one in products}) == len(products)
    assert {one.category for one in products} == {category.name for category in CATEGORIES}
    assert all(one.price > 0 for one in products)


def test_a_catalogue_that_is_larger_than_the_words_allow_is_refused() -> None:
    with pytest.raises(ValueError, match="there are names for"):
        catalogue(7, 1_000_000)


def test_past_orders_have_as_many_lines_as_were_asked_for_and_are_from_before() -> None:
    products = catalogue(7, 50)
    before = datetime(2026, 1, 1, tzinfo=UTC)
    orders = past_orders(products, seed=7, line_count=500, before=before)

    assert 500 <= sum(len(order.lines) for order in orders) < 505
    assert all(order.placed_at < before for order in orders)
    assert [order.order_id for order in orders] == list(range(1, len(orders) + 1))
