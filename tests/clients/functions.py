"""Functions as authors write them, without a word of any library: served once by mcpd and once by FastMCP.

`CALLS` is how each of them is called; what frameworks then get has to be the same from both servers.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

# A red dot.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)

# ------------------------------------------------------------------------------- no arguments


def nothing_at_all() -> None:
    """Takes nothing and gives nothing."""


def ready() -> bool:
    """Takes nothing."""
    return True


def untyped():  # type: ignore[no-untyped-def]
    """Says nothing of its result."""
    return "as it is"


# ------------------------------------------------------------------------------------ scalars


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def half(number: float) -> float:
    """Halves a number."""
    return number / 2


def greet(name: str, greeting: str = "Hello", excited: bool = False) -> str:
    """Greets somebody."""
    return f"{greeting}, {name}{'!' if excited else '.'}"


def maybe(text: str | None = None, number: int | None = None) -> str | None:
    """Both may be left out, or null."""
    return None if text is None else f"{text} {number}"


def described(
    text: Annotated[str, "What to say"],
    times: Annotated[int, Field(description="How often", ge=1, le=5)] = 1,
    prefix: str = Field(default="> ", description="What stands before it", max_length=4),
) -> str:
    """Arguments with descriptions and limits."""
    return prefix + text * times


def bounded(
    tags: Annotated[list[Annotated[str, Field(min_length=1)]] | None, Field(max_length=4)] = None,
    level: Annotated[int | None, Field(ge=1)] = None,
) -> list[str]:
    """Limits within lists and unions."""
    return [*(tags or []), str(level)]


# ---------------------------------------------------------------------------- literals, enums


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def sort_by(order: Literal["newest", "best", "cheapest"] = "newest", limit: Literal[10, 20] = 10) -> str:
    """Literals in an order that means something."""
    return f"{limit} {order}"


def paint(color: Color, level: Level = Level.LOW) -> Color:
    """Enums, both ways."""
    assert isinstance(level, Level)
    return color


# -------------------------------------------------------------------------- lists, dicts, tuples


class Point(NamedTuple):
    x: float
    y: float


def total(numbers: list[float]) -> float:
    """A list of numbers."""
    return sum(numbers)


def words(text: str) -> list[str]:
    """A list as the result."""
    return text.split()


def empty() -> list[int]:
    """A list with nothing in it."""
    return []


def counted(text: str) -> dict[str, int]:
    """A dict as the result."""
    return {word: text.split().count(word) for word in text.split()}


def anything(data: dict[str, Any], extra: Any = None) -> dict[str, Any]:
    """Gives back what it was given."""
    return {"data": data, "extra": extra}


def untyped_containers(items: list, options: dict) -> dict:  # type: ignore[type-arg]
    """Containers of anything."""
    return {"items": items, "options": options}


def swap(pair: tuple[int, str]) -> tuple[str, int]:
    """A tuple, both ways."""
    return pair[1], pair[0]


def path_length(points: list[tuple[float, float]]) -> tuple[float, ...]:
    """A list of tuples, and a tuple of any length."""
    return tuple(abs(x) + abs(y) for x, y in points)


def named(point: Point) -> Point:
    """A named tuple, both ways."""
    return Point(point.y, point.x)


def unique(numbers: set[int]) -> set[int]:
    """A set, both ways."""
    return {number * 2 for number in numbers}


# ------------------------------------------------------------------------------ nested objects


@dataclass
class Address:
    street: str
    city: str = "Paris"


@dataclass
class Person:
    """Somebody."""

    name: str
    address: Address
    tags: list[str] = field(default_factory=list)
    home: Address | None = None


class Item(BaseModel):
    """One line of an order."""

    name: str = Field(description="What it is called")
    price: float = Field(ge=0)
    count: int = 1


class Order(BaseModel):
    id: int
    items: list[Item]
    color: Color | None = None
    note: str | None = None


class Options(TypedDict, total=False):
    verbose: bool
    depth: int


def introduce(person: Person) -> str:
    """A dataclass in a dataclass."""
    return f"{person.name}, {person.address.street}, {person.address.city}, {len(person.tags)} tags"


def move(person: Person, address: Address) -> Person:
    """Dataclasses in and out; one of them twice."""
    return Person(person.name, address, person.tags, person.address)


def price(order: Order) -> float:
    """A pydantic model in a pydantic model."""
    return sum(item.price * item.count for item in order.items)


def repeat_order(order: Order, others: list[Order] | None = None) -> Order:
    """A pydantic model, both ways."""
    return order.model_copy(update={"id": order.id + 1 + len(others or [])})


def configure(options: Options) -> Options:
    """A TypedDict, both ways."""
    return {**options, "verbose": True}


def by_name(people: dict[str, Address]) -> dict[str, Address]:
    """A dict of dataclasses, both ways."""
    return dict(sorted(people.items()))


# -------------------------------------------------------------------------------------- unions


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    good: bool = True


def either(value: int | str) -> str:
    """A number or a text."""
    return f"{type(value).__name__} {value}"


def several(value: int | list[int] | None = None) -> int:
    """A number, some numbers, or none."""
    return sum(value) if isinstance(value, list) else value or 0


def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> str:
    """One of two models, told apart by a member."""
    return f"{pet.kind} {pet.lives if isinstance(pet, Cat) else pet.good}"


def deliver(to: Address | str) -> str:
    """A dataclass or a text."""
    return to if isinstance(to, str) else to.street


def adopt(pet: Cat | Dog) -> Cat | Dog:
    """One of two models, in and out."""
    return pet


# ------------------------------------------------------------------------------- recursive types


class Folder(BaseModel):
    name: str
    folders: list[Folder] = []


@dataclass
class Node:
    value: int
    next: Node | None = None


def depth(folder: Folder) -> int:
    """A model that holds itself."""
    return 1 + max((depth(inner) for inner in folder.folders), default=0)


def grow(node: Node) -> Node:
    """A dataclass that holds itself, both ways."""
    return Node(node.value + 1, node)


# -------------------------------------------------------------------------- what JSON has not


def when(day: date, at: datetime | None = None, lasts: timedelta = timedelta(hours=1)) -> str:
    """Days and times."""
    return f"{day:%d.%m.%Y} {at and at.hour} {lasts.total_seconds():.0f}"


def tomorrow(day: date) -> date:
    """A day, both ways."""
    return day + timedelta(days=1)


def exact(amount: Decimal) -> Decimal:
    """A decimal number, both ways."""
    return amount * 2


def identify(id: UUID, at: Path) -> str:
    """An identifier and a path."""
    return f"{id.hex[:8]} {at.name}"


# -------------------------------------------------------------------------------------- errors


def divide(a: int, b: int) -> float:
    """Fails by accident for b = 0."""
    return a / b


async def later(text: str) -> str:
    """A coroutine function."""
    return text[::-1]


TOOLS: list[Callable[..., Any]] = [
    nothing_at_all, ready, untyped,
    add, half, greet, maybe, described, bounded,
    sort_by, paint,
    total, words, empty, counted, anything, untyped_containers, swap, path_length, named, unique,
    introduce, move, price, repeat_order, configure, by_name,
    either, several, feed, deliver, adopt,
    depth, grow,
    when, tomorrow, exact, identify,
    divide, later,
]  # fmt: skip

_ADDRESS = {"street": "Rue 1", "city": "Lyon"}
_PERSON = {"name": "Ann", "address": _ADDRESS, "tags": ["a", "b"], "home": None}
_ORDER = {"id": 7, "items": [{"name": "pen", "price": 1.5, "count": 2}], "color": "red", "note": None}

# The tools of the two server files, which need a library, are called too.
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("nothing_at_all", {}),
    ("ready", {}),
    ("untyped", {}),
    ("add", {"a": 2, "b": 3}),
    ("add", {"a": 2}),
    ("half", {"number": 3}),
    ("half", {"number": 4.5}),
    ("greet", {"name": "Zoë ✓"}),
    ("greet", {"name": "Ann", "greeting": "Hi", "excited": True}),
    ("maybe", {}),
    ("maybe", {"text": "it", "number": None}),
    ("maybe", {"text": "it", "number": 3}),
    ("described", {"text": "ho"}),
    ("described", {"text": "ho", "times": 3, "prefix": "- "}),
    ("bounded", {}),
    ("bounded", {"tags": ["a", "b"], "level": 2}),
    ("sort_by", {}),
    ("sort_by", {"order": "best", "limit": 20}),
    ("paint", {"color": "green"}),
    ("paint", {"color": "red", "level": 2}),
    ("total", {"numbers": [1, 2.5]}),
    ("words", {"text": "one two"}),
    ("empty", {}),
    ("counted", {"text": "a b a"}),
    ("anything", {"data": {"a": [1, {"b": None}]}, "extra": "x"}),
    ("anything", {"data": {}}),
    ("untyped_containers", {"items": [1, "a"], "options": {"a": True}}),
    ("swap", {"pair": [1, "one"]}),
    ("path_length", {"points": [[1, 2], [-3, 4.5]]}),
    ("named", {"point": [1, 2.5]}),
    ("unique", {"numbers": [3]}),
    ("introduce", {"person": _PERSON}),
    ("introduce", {"person": {"name": "Bob", "address": {"street": "Rue 2"}}}),
    ("move", {"person": _PERSON, "address": {"street": "Rue 3"}}),
    ("price", {"order": _ORDER}),
    ("price", {"order": {"id": 1, "items": []}}),
    ("repeat_order", {"order": _ORDER}),
    ("repeat_order", {"order": _ORDER, "others": [_ORDER]}),
    ("configure", {"options": {"depth": 3}}),
    ("by_name", {"people": {"b": _ADDRESS, "a": {"street": "Rue 4"}}}),
    ("either", {"value": 1}),
    ("either", {"value": "one"}),
    ("several", {"value": [1, 2]}),
    ("several", {"value": 3}),
    ("several", {}),
    ("feed", {"pet": {"kind": "dog"}}),
    ("feed", {"pet": {"kind": "cat", "lives": 7}}),
    ("deliver", {"to": "Rue 5"}),
    ("deliver", {"to": _ADDRESS}),
    ("adopt", {"pet": {"kind": "dog", "good": True}}),
    ("depth", {"folder": {"name": "a", "folders": [{"name": "b", "folders": [{"name": "c", "folders": []}]}]}}),
    ("grow", {"node": {"value": 1, "next": {"value": 2, "next": None}}}),
    ("when", {"day": "2026-11-22"}),
    ("when", {"day": "2026-11-22", "at": "2026-11-22T10:30:00", "lasts": "PT90M"}),
    ("tomorrow", {"day": "2026-11-30"}),
    ("exact", {"amount": "1.25"}),
    ("identify", {"id": "12345678-1234-5678-1234-567812345678", "at": "a/b.txt"}),
    ("divide", {"a": 1, "b": 2}),
    ("later", {"text": "abc"}),
    ("picture", {}),
    ("pictures", {}),
    ("blocks", {}),
    ("slowly", {"steps": 3}),
]

# Calls that have to fail in both, in whichever words.
FAILING: list[tuple[str, dict[str, Any]]] = [
    ("refuse", {"reason": "not today"}),
    ("divide", {"a": 1, "b": 0}),
    ("add", {"a": "two"}),
    ("described", {"text": "ho", "times": 6}),
    ("described", {"text": "ho", "prefix": "too long"}),
    ("bounded", {"tags": ["a", "b", "c", "d", "e"]}),
    ("bounded", {"level": 0}),
    ("bounded", {"tags": [""]}),
    ("sort_by", {"order": "worst"}),
    ("paint", {"color": "blue"}),
    ("introduce", {"person": {"name": "Bob"}}),
    ("feed", {"pet": {"kind": "cow"}}),
]
