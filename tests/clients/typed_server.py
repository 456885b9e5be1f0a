"""A server whose tools take and give what schemas are hard to write for."""

from __future__ import annotations

import datetime
import decimal
import enum
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from mcpd import Server

server = Server("typed")


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Place(NamedTuple):
    row: int
    name: str = ""


class Tree(Struct):
    size: Size
    children: list[Tree] = []


class Order(Struct):
    at: datetime.datetime
    price: decimal.Decimal
    places: list[Place]
    box: tuple[int, int, str]
    how: Literal["post", 1, None] = None
    file: Path | None = None
    trees: dict[str, Tree] = {}


@server.tool
def nothing() -> None:
    """Takes nothing."""


@server.tool
def pair(first: Size, second: tuple[int, str]) -> tuple[Size, int]:
    """Gives a pair."""
    return first, second[0]


@server.tool
def order(order: Order, again: Order | None = None) -> Order:
    """Gives an order back."""
    return order


@server.tool
def tree(tree: Tree) -> list[Tree]:
    """Gives a tree back."""
    return [tree]
