"""Which return annotations promise data. S25-057, S26-107: what has an output schema conforms to it."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import inspect
import pathlib
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar

import msgspec
import pytest
from msgspec import Meta

from mcpd.server.functions.results import awaited, data_type


class Block(msgspec.Struct):
    text: str


class Image(Block):
    pass


class Plain(msgspec.Struct):
    n: int


@dataclasses.dataclass
class Data:
    n: int


class Typed(TypedDict):
    n: int


class Named(NamedTuple):
    n: int


class Color(enum.Enum):
    RED = 1


class Opaque:
    pass


@dataclasses.dataclass
class Holder:
    opaque: Opaque


def is_content(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Block)


@pytest.mark.parametrize(
    "hint",
    [
        int,
        float,
        bool,
        dict,
        list[str],
        dict[str, Any],
        tuple[int, str],
        set[int],
        Plain,
        Data,
        Typed,
        Named,
        Color,
        Literal["a", "b"],
        Optional[int],  # noqa: UP045
        int | str,
        list[Plain] | None,
        datetime.datetime,
        Annotated[int, Meta(ge=1)],
        NewType("Count", int),
        Sequence[int],
    ],
)
def test_data(hint: Any) -> None:
    assert data_type(hint, is_content) is not None


@pytest.mark.parametrize(
    "hint",
    [
        inspect.Parameter.empty,
        None,
        type(None),
        Any,
        object,
        str,
        bytes,
        str | None,
        str | bytes,
        Annotated[str, Meta(max_length=3)],
        NewType("Name", str),
        pathlib.Path,
        TypeVar("T"),
        Block,
        Image,
        Image | None,
        list[Block],
        list[Block | str],
        list[Block] | str,
        tuple[str, Image],
        tuple[Image, ...],
        dict[str, int] | Block,
        Annotated[list[Image], "x"],
        collections.abc.Iterable[Block],
        Opaque,
        Holder,
        Iterator[int],
        list,
        list[Any],
        list | None,
        tuple,
        Sequence[object],
        list[Opaque],
        "list[int",
    ],
)
def test_no_data(hint: Any) -> None:
    assert data_type(hint, is_content) is None


def test_without_a_word_on_content_all_structs_are_data() -> None:
    assert data_type(Block) is not None
    assert data_type(list[Block]) is not None


def test_what_is_awaited_counts() -> None:
    assert awaited(Awaitable[int]) is int
    assert awaited(Coroutine[Any, Any, Awaitable[str]]) is str
    assert awaited(list[int]) == list[int]
