"""Signatures that authors write, made by Hypothesis: a type, and values of it as JSON, for arguments and results."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import itertools
import keyword
import pathlib
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import msgspec
import pydantic
from hypothesis import strategies as st
from msgspec import Meta

__all__ = ["Kind", "argument_kinds", "function_of", "kinds"]


class Kind(NamedTuple):
    """A type, and what values of it look like in Python."""

    hint: Any
    values: st.SearchStrategy[Any]


class Size(enum.Enum):
    """How large."""

    SMALL = "small"
    LARGE = "large"
    MEDIUM = "medium"


class Level(enum.IntEnum):
    HIGH = 3
    LOW = 1


class Leaf(msgspec.Struct):
    """The end of a branch."""

    name: str
    size: Size = Size.LARGE


class Tree(msgspec.Struct):
    leaf: Leaf
    children: list[Tree] = []


@dataclasses.dataclass
class Ping:
    pong: Pong | None = None
    leaf: Leaf | None = None


@dataclasses.dataclass
class Pong:
    pings: list[Ping] = dataclasses.field(default_factory=list)
    pong: Pong | None = None


class Row(NamedTuple):
    number: int
    leaf: Leaf
    note: str = ""


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    name: str | None = None


class Node(pydantic.BaseModel):
    """One of pydantic's, that contains itself."""

    user_name: str = pydantic.Field(description="Who.", min_length=1)
    kind: Literal["z", "a"] = "z"
    when: datetime.datetime | None = None
    price: decimal.Decimal = decimal.Decimal("1.50")
    pair: tuple[int, str] = (1, "x")
    links: set[int] = set()
    nodes: list[Node] = []
    by_name: dict[str, Node] = {}


class Square(pydantic.BaseModel):
    shape: Literal["square"] = "square"
    side: float


class Circle(pydantic.BaseModel):
    shape: Literal["circle"] = "circle"
    radius: Annotated[int, pydantic.Field(ge=0)] = 1
    mixed: Literal["b", 1, None, True] = None


class Drawing(pydantic.BaseModel):
    first: Annotated[Square | Circle, pydantic.Field(discriminator="shape")]
    more: list[Square | Circle | str] = []
    place: pathlib.Path | None = None
    link: pydantic.AnyUrl | None = None
    secret: pydantic.SecretStr | None = None
    code: Annotated[str, pydantic.Field(pattern=r"\A[a-z\-]+(?P<tail>\@x)?\z")] = "a"
    lasts: datetime.timedelta = datetime.timedelta(1)


_aware = st.datetimes(timezones=st.just(datetime.UTC))
_texts = st.text("äx1 -", max_size=4)
_leaf = st.builds(Leaf, _texts, st.sampled_from(Size))
_tree = st.recursive(st.builds(Tree, _leaf), lambda inner: st.builds(Tree, _leaf, st.lists(inner, max_size=2)))
_node = st.builds(
    Node,
    user_name=st.just("u"),
    kind=st.sampled_from("za"),
    when=st.none() | st.datetimes() | _aware,
    price=st.decimals(allow_nan=False, allow_infinity=False),
    pair=st.tuples(st.integers(0, 9), _texts),
    links=st.sets(st.integers(0, 9)),
    nodes=st.lists(st.builds(Node, user_name=st.just("v")), max_size=2),
)
_square, _circle = st.builds(Square, side=st.floats(0, 9)), st.builds(Circle, radius=st.integers(0, 9))
_drawing = st.builds(
    Drawing,
    first=_square | _circle,
    more=st.lists(_square | _circle | _texts, max_size=2),
    link=st.none() | st.just(pydantic.AnyUrl("http://a.example/?q=a|b")),
    lasts=st.timedeltas(),
)

_PLAIN = [
    Kind(str, _texts),
    Kind(int, st.integers(-(2**31), 2**31)),
    Kind(float, st.floats(-1e9, 1e9)),
    Kind(bool, st.booleans()),
    Kind(bytes, st.binary(max_size=4)),
    Kind(uuid.UUID, st.uuids()),
    Kind(decimal.Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Kind(datetime.datetime, st.datetimes() | _aware),
    Kind(Annotated[datetime.datetime, Meta(tz=True)], _aware),
    Kind(datetime.date, st.dates()),
    Kind(datetime.time, st.times() | st.times(timezones=st.just(datetime.UTC))),
    Kind(datetime.timedelta, st.timedeltas()),
    Kind(pathlib.PurePosixPath, st.just(pathlib.PurePosixPath("a/b"))),
    Kind(Size, st.sampled_from(Size)),
    Kind(Level, st.sampled_from(Level)),
    Kind(Literal["b", "a"], st.sampled_from("ba")),
    Kind(Literal["b", 2, "a", 1, None], st.sampled_from(("b", 2, "a", 1, None))),
    Kind(Annotated[int, Meta(ge=1, le=9, description="From one to nine.")], st.integers(1, 9)),
    Kind(Annotated[str, Meta(pattern=r"\A\w+\Z")], st.just("x")),
    Kind(Leaf, _leaf),
    Kind(Tree, _tree),
    Kind(Ping, st.builds(Ping, st.builds(Pong, st.lists(st.builds(Ping), max_size=2)), st.none() | _leaf)),
    Kind(Row, st.builds(Row, st.integers(0, 9), _leaf, _texts)),
    Kind(Cat | Dog, st.builds(Cat, st.integers(0, 9)) | st.builds(Dog, _texts)),
    Kind(Node, _node),
    Kind(Drawing, _drawing),
    Kind(list, st.lists(st.integers(0, 9) | _texts, max_size=2)),
    Kind(dict, st.dictionaries(_texts, st.integers(0, 9), max_size=2)),
    Kind(tuple[()], st.just(())),
]


def kinds() -> st.SearchStrategy[Kind]:
    """Types as authors write them: plain ones, and records, lists, tuples, maps and optionals of them."""
    return st.recursive(st.sampled_from(_PLAIN), _compound, max_leaves=5)


def argument_kinds() -> st.SearchStrategy[list[Kind]]:
    """The types of a function's parameters."""
    return st.lists(kinds(), max_size=3)


def _compound(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda kind: Kind(list[kind.hint], st.lists(kind.values, max_size=2))),
        inner.map(lambda kind: Kind(tuple[kind.hint, ...], st.lists(kind.values, max_size=2).map(tuple))),
        inner.map(lambda kind: Kind(dict[str, kind.hint], st.dictionaries(_texts, kind.values, max_size=2))),
        inner.map(lambda kind: Kind(Optional[kind.hint], st.none() | kind.values)),  # noqa: UP045 - of any form of hint
        several.map(
            lambda some: Kind(tuple[tuple(one.hint for one in some)], st.tuples(*(one.values for one in some)))
        ),
        st.tuples(st.sampled_from((_struct, _dataclass, _typed_dict)), several).map(lambda made: made[0](made[1])),
    )


_numbers = itertools.count()


def _members(some: list[Kind]) -> dict[str, Kind]:
    return {f"member_{index}": kind for index, kind in enumerate(some)}


def _struct(some: list[Kind]) -> Kind:
    members = _members(some)
    made = msgspec.defstruct(f"Made{next(_numbers)}", [(name, kind.hint) for name, kind in members.items()])
    return Kind(made, st.builds(made, **{name: kind.values for name, kind in members.items()}))


def _dataclass(some: list[Kind]) -> Kind:
    members = _members(some)
    made = dataclasses.make_dataclass(f"Made{next(_numbers)}", [(name, kind.hint) for name, kind in members.items()])
    return Kind(made, st.builds(made, **{name: kind.values for name, kind in members.items()}))


def _typed_dict(some: list[Kind]) -> Kind:
    members = _members(some)
    made = TypedDict(f"Made{next(_numbers)}", {name: kind.hint for name, kind in members.items()}, total=False)
    return Kind(made, st.fixed_dictionaries({}, optional={name: kind.values for name, kind in members.items()}))


def function_of(some: list[Kind], returns: Kind) -> Callable[..., Any]:
    """A function with a parameter of each kind, all of them required, that gives what it is set to: `.result`."""
    members = _members(some)
    assert not any(keyword.iskeyword(name) for name in members)
    made: dict[str, Any] = {}
    exec(f"def made({', '.join(members)}): return made.result", made)
    function: Any = made["made"]
    function.__annotations__ = {**{name: kind.hint for name, kind in members.items()}, "return": returns.hint}
    return function  # type: ignore[no-any-return]
