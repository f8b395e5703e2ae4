"""A catalogue of products, put together from lists of words: the same for the same seed.

A name is a style, a material and a thing: "Nordic Oak Bookshelf". Each category has things of its own, what
these are made of, what they cost, and what can be said of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from random import Random
from typing import Final

STOCK_FIRST: Final = 500
"""How many of each there are when the shop opens."""
STYLES: Final = (
    *("Classic", "Nordic", "Compact", "Vintage", "Modern", "Rustic", "Slim", "Foldable", "Handmade"),
    *("Everyday", "Travel", "Festive", "Sturdy", "Light", "Quiet", "Round", "Tall", "Tiny"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product as it is offered."""

    product_id: int
    name: str
    description: str
    category: str
    price: Decimal
    stock: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """What the products of a category have in common."""

    name: str
    materials: Sequence[str]
    things: Sequence[str]
    price_min: int
    price_max: int
    uses: Sequence[str]
    """What one does with it: "for ..."."""
    details: Sequence[str]
    """A sentence about it."""

    @property
    def names(self) -> list[tuple[str, str, str]]:
        """All names that a product of it can have: style, material, thing."""
        return list(product(STYLES, self.materials, self.things))


CATEGORIES: Final = (
    Category(
        name="furniture",
        materials=("Oak", "Walnut", "Birch", "Bamboo", "Steel"),
        things=("Bookshelf", "Desk", "Stool", "Sideboard", "Coat Rack", "Bench", "Nightstand"),
        price_min=49,
        price_max=890,
        uses=("small flats", "the hallway", "a home office", "a guest room", "long evenings"),
        details=(
            "Oiled by hand, and easy to repair.",
            "Comes flat, and stands in a quarter of an hour.",
            "Its edges are rounded, so that nobody gets hurt.",
            "Carries more than it seems to.",
        ),
    ),
    Category(
        name="kitchen",
        materials=("Copper", "Enamel", "Cast Iron", "Glass", "Stoneware"),
        things=("Kettle", "Saucepan", "Teapot", "Baking Dish", "Coffee Grinder", "Bowl", "Mortar"),
        price_min=9,
        price_max=180,
        uses=("gas and induction", "Sunday breakfast", "slow stews", "two people", "a crowd"),
        details=(
            "Goes into the dishwasher.",
            "Keeps its heat for an hour.",
            "The handle stays cool.",
            "Made to be handed on to your children.",
        ),
    ),
    Category(
        name="clothing",
        materials=("Merino", "Linen", "Cotton", "Alpaca", "Hemp"),
        things=("Scarf", "Jumper", "Shirt", "Socks", "Cardigan", "Cap", "Gloves"),
        price_min=12,
        price_max=160,
        uses=("cold mornings", "warm days", "hiking", "the theatre", "all weathers"),
        details=(
            "Does not scratch.",
            "Can be washed at 30 degrees.",
            "Dyed with plants, so each piece is a little different.",
            "Cut wide: take one size less.",
        ),
    ),
    Category(
        name="garden",
        materials=("Teak", "Zinc", "Terracotta", "Jute", "Larch"),
        things=("Planter", "Watering Can", "Lounger", "Raised Bed", "Bird House", "Trellis", "Lantern"),
        price_min=14,
        price_max=320,
        uses=("balconies", "shady corners", "herbs", "tomatoes", "summer nights"),
        details=(
            "Stays outside all winter.",
            "Turns grey with the years, which is as it should be.",
            "With a hole for water to run off.",
            "Robins like it.",
        ),
    ),
    Category(
        name="stationery",
        materials=("Leather", "Recycled Paper", "Cork", "Brass", "Birch"),
        things=("Notebook", "Pen", "Pencil Case", "Desk Calendar", "Letter Tray", "Ruler", "Album"),
        price_min=4,
        price_max=75,
        uses=("left-handers", "long letters", "sketches", "the first day at school", "lists"),
        details=(
            "The paper takes ink without bleeding.",
            "Fits into every bag.",
            "Can be refilled.",
            "Lies flat when it is open.",
        ),
    ),
)


def catalogue(seed: int, count: int) -> list[Product]:
    """So many products, all with names of their own, numbered from 1."""
    random = Random(seed)
    names = [(category, name) for category in CATEGORIES for name in category.names]
    if count > len(names):
        raise ValueError(f"there are names for {len(names)} products, not for {count}: ask for fewer")
    return [_product(random, number, *each) for number, each in enumerate(random.sample(names, count), 1)]


def _product(random: Random, product_id: int, category: Category, name: tuple[str, str, str]) -> Product:
    style, material, thing = name
    use, other = random.sample(category.uses, 2)
    detail = random.choice(category.details)
    return Product(
        product_id=product_id,
        name=f"{style} {material} {thing}",
        description=(f"{style} {thing.lower()} of {material.lower()}, for {use} and for {other}. {detail}"),
        category=category.name,
        price=Decimal(random.randint(category.price_min, category.price_max)) - Decimal("0.05"),
        stock=STOCK_FIRST,
    )
